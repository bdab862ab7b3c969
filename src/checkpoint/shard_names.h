// Files whose names say that they are pieces of a checkpoint: model-00001-of-00003.safetensors, as Hugging Face,
// Mistral and others have it. If there is no index, only the names show that a file is missing. Used by
// SurveyCheckpoint.
#pragma once

#include <string>
#include <vector>

namespace layercast {

// The names that must exist according to the numbers in `names` but are not among them. They are in natural order
// within each set of files.
std::vector<std::string> MissingShards(const std::vector<std::string>& names);

}  // namespace layercast
