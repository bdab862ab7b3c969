// What `layercast inspect` says of a LoRA adapter.
#pragma once

#include <string>

#include "cli/terminal/output.h"

namespace layercast::cli {

// Reads all of the adapter in that folder, and prints its modules. Throws what AdapterFolder throws, and, once all is
// printed, the first problem if there are any.
void InspectAdapter(const std::string& folder, Output& output);

}  // namespace layercast::cli
