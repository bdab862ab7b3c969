// Reads *.safetensors.
#pragma once

#include <memory>

#include "src/checkpoint/loader.h"

namespace layercast {

std::unique_ptr<const Loader> MakeSafetensorsLoader();

}  // namespace layercast
