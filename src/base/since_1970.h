// The time of day, as other processes and files are told it.
#pragma once

#include <chrono>
#include <cstdint>

namespace layercast {

inline std::uint64_t MillisecondsSince1970() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(since).count());
}

}  // namespace layercast
