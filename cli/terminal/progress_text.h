// What `status` prints for people of the reload that an engine is at.
#pragma once

#include <string>

#include "src/control/json_forms.h"

namespace layercast::cli {

// `progress` is that field of an engine's status. Empty if it is null: no reload is under way.
std::string ProgressText(const Json& progress);

}  // namespace layercast::cli
