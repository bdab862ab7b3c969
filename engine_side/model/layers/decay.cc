#include "engine_side/model/layers/decay.h"

namespace layercast {

DerivedTensor DecayOf(const TensorSpec& a_log) {
  return {{"A", DType::kF32, a_log.shape}, {a_log}, DerivedTensor::NegatedExponential{}};
}

}  // namespace layercast
