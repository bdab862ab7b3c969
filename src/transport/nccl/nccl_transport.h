// The transport that moves chunks between GPUs by NCCL: over NVLink, PCIe or the network, whichever NCCL finds best.
// FORMAT.md has the messages.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>

#include "src/device/channel_device.h"
#include "src/transport/channel/channel.h"
#include "src/transport/nccl/fleet/patience.h"
#include "src/transport/nccl/wire/nccl_library.h"
#include "src/transport/nccl/wire/nccl_messages.h"

namespace layercast {
namespace nccl_channel {

// What the channel is built on. Owned together by the transport and the ends that it made, which may outlive it.
struct NcclParts {
  std::shared_ptr<NcclLibrary> library;
  std::shared_ptr<ChannelDevice> device;
  Patience patience{};
  std::size_t piece_bytes = kPieceBytes;  // of a slot, and the most of a piece; the same at both ends. Less in tests
};

// The parts for CUDA device `device`, with libnccl. Throws kUnsupported, saying what is missing.
NcclParts OpenNcclParts(int device);

}  // namespace nccl_channel

// The transport on CUDA device `device`; if none is given, on the one that is the calling thread's when the channel is
// first used.
std::unique_ptr<Transport> MakeNcclTransport(std::optional<int> device = std::nullopt);
// `open` is called once; what it throws is why the channel cannot be used here.
std::unique_ptr<Transport> MakeNcclTransport(std::function<nccl_channel::NcclParts()> open);

}  // namespace layercast
