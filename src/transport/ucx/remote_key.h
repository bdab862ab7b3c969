// What can be told of a key of UCX's before UCX reads it: ucp_ep_rkey_unpack is not told how long a key is, and
// believes what it says.
#pragma once

#include <cstddef>
#include <span>

namespace layercast::ucx_channel {

constexpr std::size_t kMaxKeyBytes = 1024;

// Throws kCorrupt unless it is as long as it says, of host memory, and names a device that reads by itself: of a key
// that names none, UCX would ask the publisher's software, which checks nothing.
void CheckKey(std::span<const std::byte> key);

}  // namespace layercast::ucx_channel
