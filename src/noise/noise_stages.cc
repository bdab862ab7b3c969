#include "layercast/noise/noise_stages.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "layercast/error.h"
#include "src/noise/fnv.h"

namespace layercast {
namespace {

[[noreturn]] void RefuseStages(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "a schedule of noise: " + message);
}

void CheckStages(const NoiseStages& of) {
  const auto is_sigma = [](double sigma) { return std::isfinite(sigma) && sigma > 0 && sigma <= 1; };
  if (!is_sigma(of.start) || !is_sigma(of.end)) {
    RefuseStages("expected sigmas above 0 and at most 1, got " + std::to_string(of.start) + " and " +
                 std::to_string(of.end));
  }
  if (of.stages < 2) RefuseStages("expected 2 stages or more, got " + std::to_string(of.stages));
  if (of.steps == 0) RefuseStages("expected the run's number of steps, got 0");
}

}  // namespace

std::uint64_t NoiseSeed(std::string_view lineage, std::uint64_t step, std::uint64_t run_seed) {
  return Fnv1a(std::string(lineage) + "@" + std::to_string(step) + "#" + std::to_string(run_seed));
}

NoiseUse NoiseUseNamed(std::string_view name) {
  if (name == "shared") return NoiseUse::kShared;
  if (name == "per-engine") return NoiseUse::kPerEngine;
  if (name == "off") return NoiseUse::kOff;
  throw Error(ErrorCode::kInvalidArgument,
              "noise: expected shared, per-engine or off, got '" + std::string(name) + "'");
}

std::optional<Noise> NoiseStages::At(std::string_view lineage, std::uint64_t step) const {
  CheckStages(*this);
  const double of_run = static_cast<double>(step) * stages / static_cast<double>(steps);
  const double stage = std::min(std::floor(of_run), static_cast<double>(stages - 1));
  if (stage < 1) return std::nullopt;
  const double along = stages == 2 ? 0 : (stage - 1) / (stages - 2);
  const auto sigma = static_cast<float>(start * std::pow(end / start, along));
  return Noise{.sigma = sigma, .seed = NoiseSeed(lineage, step, run_seed)};
}

}  // namespace layercast
