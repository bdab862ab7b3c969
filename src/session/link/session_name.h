// What the logs of both ends call a reload by: all ranks of an engine, and the publisher that they take from, know the
// engine's name and the number of its attempt from the handshake. Used for the lines of the log alone.
#pragma once

#include <cstdint>
#include <string>

namespace layercast {

// No other reload has it: an engine's name has the time of its start, and it counts its attempts.
inline std::string SessionName(const std::string& engine, std::uint64_t attempt) {
  return engine + "/" + std::to_string(attempt);
}

}  // namespace layercast
