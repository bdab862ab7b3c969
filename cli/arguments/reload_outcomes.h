// What became of a reload on each of several engines, in words. Used by the subcommands that reload.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/terminal/output.h"
#include "layercast/controller.h"
#include "layercast/error.h"

namespace layercast::cli {

// What came of a canary. Value.
struct CanaryVerdict {
  Version version;
  std::vector<std::string> canaries;
  std::optional<Error> against;  // why the version was not promoted; nullopt: it was
};

// Prints {"ok", "engines"}, or one paragraph for each engine; of a canary also {"canary"}. Throws the error of those
// that failed, or the verdict's, which then is printed too.
void PrintOutcomes(Output& output, const std::vector<EngineOutcome>& outcomes,
                   const std::optional<CanaryVerdict>& verdict = {});

}  // namespace layercast::cli
