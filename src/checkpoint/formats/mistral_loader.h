// Reads Mistral's own layout: consolidated*.safetensors beside params.json.
#pragma once

#include <memory>

#include "src/checkpoint/loader.h"

namespace layercast {

std::unique_ptr<const Loader> MakeMistralLoader();

}  // namespace layercast
