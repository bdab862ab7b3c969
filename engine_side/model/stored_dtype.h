// The dtype of a model whose config.json says none: that of the checkpoint beside it, as transformers and engines take
// it. Published GPT-OSS and others leave it out. Used by ModelDescription.
#pragma once

#include <filesystem>
#include <string>

namespace layercast {

// `config_text`, with a `dtype` where it says none and `directory` has weights: that of the largest tensor in full
// precision, since scales and the biases of routers are small. What cannot be read stays as it is: whoever parses or
// loads it says why.
std::string WithStoredDType(std::string config_text, const std::filesystem::path& directory);

}  // namespace layercast
