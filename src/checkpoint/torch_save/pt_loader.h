// Reads what torch.save has written.
#pragma once

#include <memory>

#include "src/checkpoint/loader.h"

namespace layercast {

std::unique_ptr<const Loader> MakePtLoader();

}  // namespace layercast
