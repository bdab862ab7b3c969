// Finds weight rules that touch nothing in a manifest, because a name is misspelled or the file is meant for another
// model.
#pragma once

#include <string>
#include <vector>

#include "src/tensor/manifest/manifest.h"

namespace layercast {

class Module;

// The transforms of `model`, and those of its name rules that ask to be reported, that touch no tensor. In the words of
// their Describe.
std::vector<std::string> UnusedRules(const Module& model, const Manifest& manifest);

}  // namespace layercast
