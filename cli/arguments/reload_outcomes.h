// What became of a reload on each of several engines, in words. Used by the subcommands that reload.
#pragma once

#include <vector>

#include "cli/terminal/output.h"
#include "layercast/controller.h"

namespace layercast::cli {

// Prints {"ok", "engines"}, or one paragraph for each engine. Throws the error of those that failed, which then is
// printed too.
void PrintOutcomes(Output& output, const std::vector<EngineOutcome>& outcomes);

}  // namespace layercast::cli
