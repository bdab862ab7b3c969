// UCX's configuration for this channel. What the environment sets (UCX_TLS=tcp) wins.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "src/transport/ucx/wire/ucx_messages.h"

namespace layercast::ucx_channel {

using Settings = std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)>;

// Whether the environment (UCX_TLS) allows shared memory.
bool MayShareMemory();
// Whether two processes can use shared memory between them: the environment allows it, and they have the same kernel,
// user, process namespace and network namespace. The last is needed because UCX wakes a sleeping peer by an abstract
// socket: in another network namespace the peer would sleep until its next tick.
bool ShareMemory(const HostIdentity& mine, const HostIdentity& theirs);

// The settings that all contexts of this channel have in common. Throws kUnavailable.
Settings CommonSettings();
// The settings of a context for active messages over `lanes`. `device`: the network device that kNetwork uses ("lo").
// Throws kUnavailable.
Settings MakeSettings(Lanes lanes, const std::string& device);

}  // namespace layercast::ucx_channel
