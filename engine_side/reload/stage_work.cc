#include "engine_side/reload/stage_work.h"

namespace layercast {

std::string PlacedMatrix::ToString() const {
  const PlannedParameter& planned = plan.parameters()[parameter];
  const bool one = !planned.quantize || planned.spec.shape.size() != 3 || planned.spec.shape[0] == 1;
  return "layer " + plan.layers()[planned.layer].path + ": '" + planned.spec.name + "'" +
         (one ? "" : ", matrix " + std::to_string(matrix) + " of " + std::to_string(planned.spec.shape[0]));
}

}  // namespace layercast
