// Files whose names say that they are some of several: model-00001-of-00003.safetensors, as Hugging Face, Mistral and
// others call the pieces of a checkpoint. Where no index lists them, that is all there is to tell that one is missing.
#pragma once

#include <string>
#include <vector>

namespace layercast {

// The names that those of a folder's files count and that are not among them, in natural order for each set of files.
std::vector<std::string> MissingShards(const std::vector<std::string>& names);

}  // namespace layercast
