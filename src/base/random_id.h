// A number that nobody else has: names what must not be mistaken for its like of another time or process. No secret.
#pragma once

#include <cstdint>
#include <random>

namespace layercast {

inline std::uint64_t RandomId() {
  std::random_device random;
  return (static_cast<std::uint64_t>(random()) << 32) | random();
}

}  // namespace layercast
