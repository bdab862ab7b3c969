// The transport that moves chunks by UCX: as active messages over shared memory, TCP or what the environment names, or
// by one-sided reads over RDMA. FORMAT.md has the messages.
#pragma once

#include <memory>

#include "src/transport/channel/channel.h"
#include "src/transport/ucx/wire/remote_reads.h"

namespace layercast {
namespace ucx_channel {

// What the channel is built on besides UCX's active messages. Value.
struct UcxParts {
  std::shared_ptr<const OneSided> one_sided;  // null: none. Its owners are the transport and those who made it
  bool reads_anywhere = false;                // in tests: one-sided also where both ends are on one host
};

}  // namespace ucx_channel

std::unique_ptr<Transport> MakeUcxTransport();
std::unique_ptr<Transport> MakeUcxTransport(ucx_channel::UcxParts parts);

}  // namespace layercast
