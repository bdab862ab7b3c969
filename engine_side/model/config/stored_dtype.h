// The dtype of a model whose config.json names none, as published GPT-OSS and others do not: transformers and engines
// then take the dtype of the checkpoint beside it. Used by ModelDescription.
#pragma once

#include <filesystem>
#include <string>

namespace layercast {

// Returns `config_text`, with a `dtype` added if it names none and `directory` has weights. That dtype is the one of
// the largest full-precision tensor, since scales and routers' biases are small. A text that cannot be read is returned
// as it is: whoever parses or loads it reports why.
std::string WithStoredDType(std::string config_text, const std::filesystem::path& directory);

}  // namespace layercast
