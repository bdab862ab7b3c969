#include "cli/arguments/noise_flags.h"

#include <cmath>

#include "cli/arguments/subcommand.h"
#include "layercast/error.h"
#include "layercast/noise/noise_stages.h"

namespace layercast::cli {
namespace {

template <class Whole>
Whole WholeOf(double number) {
  constexpr double kMost = 1e9;
  if (number >= 1 && number <= kMost && number == std::floor(number)) return static_cast<Whole>(number);
  throw UsageError("--noise: expected whole numbers of stages and steps, got " + std::to_string(number));
}

}  // namespace

void NoiseFlags::Declare(CLI::App& app) {
  CLI::Option* const noise =
      app.add_option(
             "--noise", numbers_,
             "SIGMA, or START,END,STAGES,STEPS of a schedule over a run: noise that engines add to the norms of "
             "each version when they install it")
          ->delimiter(',');
  app.add_option("--noise-seed", run_seed_, "The run's seed, from which each version's follows")
      ->needs(noise)
      ->capture_default_str();
}

std::optional<Noise> NoiseFlags::At(const std::string& lineage, std::uint64_t step) const {
  if (numbers_.empty()) return std::nullopt;
  if (numbers_.size() == 1 && std::isfinite(numbers_[0]) && numbers_[0] > 0) {
    return Noise{.sigma = static_cast<float>(numbers_[0]), .seed = NoiseSeed(lineage, step, run_seed_)};
  }
  if (numbers_.size() != 4) {
    throw UsageError("--noise: expected SIGMA above 0, or START,END,STAGES,STEPS, got " +
                     std::to_string(numbers_.size()) + " numbers" +
                     (numbers_.size() == 1 ? ": " + std::to_string(numbers_[0]) : ""));
  }
  try {
    return NoiseStages{.start = numbers_[0],
                       .end = numbers_[1],
                       .stages = WholeOf<int>(numbers_[2]),
                       .steps = WholeOf<std::uint64_t>(numbers_[3]),
                       .run_seed = run_seed_}
        .At(lineage, step);
  } catch (const Error& error) {
    throw UsageError(std::string("--noise: ") + error.what());
  }
}

}  // namespace layercast::cli
