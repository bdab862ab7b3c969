// Bytes of a device's memory that lie in no one run: they are packed a part at a time by whoever knows where they are,
// to be downloaded (download.h) or digested (device_digests.h).
#pragma once

#include <cstddef>
#include <functional>

namespace layercast {

// Value; borrows.
struct GatheredBytes {
  std::size_t bytes = 0;  // of all
  std::size_t unit = 1;   // every part begins and ends at a multiple of it
  // Queues bytes [begin, begin + count) of all, packed, to a place on the device. `count` is not 0.
  std::function<void(std::size_t begin, std::size_t count, std::byte* to)> gather;
};

}  // namespace layercast
