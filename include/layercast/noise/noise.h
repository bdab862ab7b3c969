// The noise that a version asks of engines: it is added to the weight of every RMS norm when the version is installed,
// so that rollouts explore (QeRL, arXiv 2510.11696, "adaptive quantization noise"). docs/noise.md. Values.
#pragma once

#include <cstdint>

namespace layercast {

// A version's noise. What each channel gets follows from these numbers, the parameter's name and the channel's number
// alone (src/noise/normals.h), so that all ranks and engines draw the same, and anybody can draw it again.
struct Noise {
  float sigma = 0;         // the standard deviation; 0: none
  std::uint64_t seed = 0;  // another one for each version: NoiseSeed (noise_stages.h)
  std::uint64_t own = 0;   // of an engine that draws its own (NoiseUse::kPerEngine); 0: shared. No version has one

  bool operator==(const Noise&) const = default;
};

// What an engine makes of noise that versions carry.
enum class NoiseUse : std::uint8_t {
  kShared,     // draws it as every other engine does
  kPerEngine,  // draws its own, by the version's seed and the engine's name
  kOff,        // serves the clean version
};

}  // namespace layercast
