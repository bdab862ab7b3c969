// How far behind its publisher an engine may be that generates: what `generate` asks for, and what `serve` holds every
// call against that asks for nothing else.
#pragma once

#include <chrono>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>

#include "cli/arguments/arguments.h"

namespace layercast::cli {

class StalenessFlags {
 public:
  // `steps` says what --max-staleness does there, `who` ("the engine", "it") may have heard its publisher.
  void Declare(CLI::App& app, const std::string& steps, const std::string& who) {
    CLI::Option* const staleness = app.add_option("--max-staleness", steps_, steps)->check(WholeNumber(0));
    app.add_option("--heard-within", heard_within_,
                   "Seconds: how long ago " + who + " may have heard its publisher; by default 30")
        ->check(Number(0))
        ->needs(staleness);
  }

  std::optional<std::uint64_t> steps() const { return steps_; }  // nullopt: no bound was given
  std::optional<std::chrono::milliseconds> heard_within() const {
    if (!heard_within_) return std::nullopt;
    return std::chrono::milliseconds(std::llround(1000 * *heard_within_));
  }

 private:
  std::optional<std::uint64_t> steps_;
  std::optional<double> heard_within_;
};

}  // namespace layercast::cli
