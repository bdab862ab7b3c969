// Checks a UCX key, as far as that is possible, before UCX reads it: ucp_ep_rkey_unpack is not told how long a key is,
// and believes what the key says. Used by UcxReads and UcxRegisteredMemory.
#pragma once

#include <cstddef>
#include <span>

namespace layercast::ucx_channel {

constexpr std::size_t kMaxKeyBytes = 1024;

// Throws kCorrupt unless the key is as long as it says, is of host memory, and names a device that reads by itself.
// With a key that names none, UCX would have the publisher's software do the reading, which checks nothing.
void CheckKey(std::span<const std::byte> key);

}  // namespace layercast::ucx_channel
