// "run-17@42": a version without its digest, for errors that tell lineages and steps apart.
#pragma once

#include <string>

#include "layercast/version.h"

namespace layercast {

inline std::string RunAt(const Version& version) { return version.lineage + "@" + std::to_string(version.step); }

}  // namespace layercast
