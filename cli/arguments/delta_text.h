// In which form an engine that keeps its source took a version, in words. Used by the subcommands that reload, and by
// status.
#pragma once

#include <string>

#include "src/control/json_forms.h"

namespace layercast::cli {

// Of a report's "delta": "  as a delta of run@3: 1234 of 567890 bytes, 12.3 ms; estimated 9.9 ms, dense 412.0 ms", or
// why it came dense. Empty if that is null.
std::string DeltaText(const Json& delta);

}  // namespace layercast::cli
