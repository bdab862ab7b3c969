// How a trainer says the noise of its versions: a schedule over the run, and the seed of each version. Used for
// PublishOptions::noise.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "layercast/export.h"
#include "layercast/noise/noise.h"

namespace layercast {

// The seed of one version's noise: the FNV-1a hash (64 bits) of the text "LINEAGE@STEP#RUN_SEED".
LAYERCAST_PUBLIC std::uint64_t NoiseSeed(std::string_view lineage, std::uint64_t step, std::uint64_t run_seed);

// Of "shared", "per-engine" or "off"; throws kInvalidArgument on another name.
LAYERCAST_PUBLIC NoiseUse NoiseUseNamed(std::string_view name);

// A schedule of K stages of equal length, the first without noise; in stage k = 1 ... K - 1 sigma is
// start * (end / start)^((k - 1) / (K - 2)). Step t of T is in stage min(floor(t / (T / K)), K - 1). As in QeRL's
// trl_trainer/noise_scheduler.py, whose numbers are the defaults. Value.
struct LAYERCAST_PUBLIC NoiseStages {
  double start = 1e-2;
  double end = 1e-4;
  int stages = 10;          // 2 or more; of 2 the second one has `start`
  std::uint64_t steps = 0;  // of the whole run
  std::uint64_t run_seed = 0;

  // The noise of the version of that name; empty in the first stage. Throws kInvalidArgument on numbers that make no
  // schedule.
  std::optional<Noise> At(std::string_view lineage, std::uint64_t step) const;
};

}  // namespace layercast
