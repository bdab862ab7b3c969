// Whether a derived tensor can be made of its sources in the form that it says. Used when a layer adds one.
#pragma once

#include <string>

#include "layercast/model/derived_tensor.h"

namespace layercast {

// Throws kInvalidArgument where it cannot, naming it and what was expected. `layer`: whose it is, for the message.
void CheckForm(const DerivedTensor& derived, const std::string& layer);

}  // namespace layercast
