// The rate at which the state of a recurrent mixer decays. Used by MambaMixer and GatedDeltaNet.
#pragma once

#include "layercast/model/parameter.h"

namespace layercast {

// The derived tensor "A" = -exp(A_log), in fp32. `a_log` is the parameter's spec, of any floating-point dtype.
DerivedTensor DecayOf(const TensorSpec& a_log);

}  // namespace layercast
