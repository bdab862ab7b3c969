// What the state of a recurrent mixer decays by. Used by MambaMixer and GatedDeltaNet.
#pragma once

#include "layercast/model/derived_tensor.h"

namespace layercast {

// "A" = -exp(A_log), in fp32. `a_log`: the parameter, of any floating-point dtype.
DerivedTensor DecayOf(const TensorSpec& a_log);

}  // namespace layercast
