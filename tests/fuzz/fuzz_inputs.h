// How many inputs a fuzz target gets. Header-only.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <string>

namespace layercast {

// `usual`, or what LAYERCAST_FUZZ_INPUTS says (scripts/nightly fuzz).
inline std::size_t FuzzInputs(std::size_t usual) {
  const char* const wanted = std::getenv("LAYERCAST_FUZZ_INPUTS");
  return wanted == nullptr ? usual : std::stoull(wanted);
}

}  // namespace layercast
