// UCX's configuration as this channel wants it. Whatever the environment names (UCX_TLS=tcp) wins.
#pragma once

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "src/transport/ucx/messages.h"

namespace layercast::ucx_channel {

using Settings = std::unique_ptr<ucp_config_t, decltype(&ucp_config_release)>;

// Whether the environment leaves the choice of shared memory to us, or makes it (UCX_TLS).
bool MayShareMemory();
// Whether two processes that may are near enough: one kernel, one user, one process namespace, and one network
// namespace, because UCX wakes a sleeping peer by an abstract socket: in another it would sleep until its next tick.
bool ShareMemory(const HostIdentity& mine, const HostIdentity& theirs);

// What every context of ours has. Throws kUnavailable.
Settings CommonSettings();
// `device`: the network device that kNetwork uses ("lo"). Throws kUnavailable.
Settings MakeSettings(Lanes lanes, const std::string& device);

}  // namespace layercast::ucx_channel
