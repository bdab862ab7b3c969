// Bytes in a device's memory that are not one contiguous run. Whoever knows where they are packs them, a part at a
// time, to be downloaded (download.h) or digested (device_digests.h).
#pragma once

#include <cstddef>
#include <functional>

namespace layercast {

// Value; borrows.
struct GatheredBytes {
  std::size_t bytes = 0;  // in all
  std::size_t unit = 1;   // every part begins and ends at a multiple of it
  // Queues a copy of bytes [begin, begin + count), packed, to a place on the device. `count` is not 0.
  std::function<void(std::size_t begin, std::size_t count, std::byte* to)> gather;
};

}  // namespace layercast
