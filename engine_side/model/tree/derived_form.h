// Checks that a derived tensor can be made from its sources in the way that it declares. Used when a layer adds one.
#pragma once

#include <string>

#include "layercast/model/parameter.h"

namespace layercast {

// Throws kInvalidArgument if it cannot be made, naming the tensor and what was expected. `layer` is the layer that owns
// it, for the message.
void CheckForm(const DerivedTensor& derived, const std::string& layer);

}  // namespace layercast
