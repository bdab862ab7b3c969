// --noise of `publish`: the noise that versions carry. Used by the publish command.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layercast/noise/noise.h"

namespace layercast::cli {

// Value; CLI11 keeps its address.
class NoiseFlags {
 public:
  void Declare(CLI::App& app);
  bool given() const { return !numbers_.empty(); }
  // Of the version of that name; throws UsageError on numbers that make no noise.
  std::optional<Noise> At(const std::string& lineage, std::uint64_t step) const;

 private:
  std::vector<double> numbers_;  // SIGMA; or START, END, STAGES, STEPS
  std::uint64_t run_seed_ = 0;
};

}  // namespace layercast::cli
