// Weight rules that say nothing of a manifest: a name that is spelled wrong, or a file for another model.
#pragma once

#include <string>
#include <vector>

#include "layercast/model/module.h"
#include "src/tensor/manifest.h"

namespace layercast {

// The transforms of `model`, and those of its name rules that are to be reported, that touch no tensor, as their
// Describe says them.
std::vector<std::string> UnusedRules(const Module& model, const Manifest& manifest);

}  // namespace layercast
