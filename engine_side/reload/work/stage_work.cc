#include "engine_side/reload/work/stage_work.h"

#include "layercast/error.h"

namespace layercast {

std::string PlacedMatrix::ToString() const {
  const PlannedParameter& planned = plan.parameters()[parameter];
  const bool one = !planned.quantize || planned.spec.shape.size() != 3 || planned.spec.shape[0] == 1;
  return "layer " + plan.layers()[planned.layer].path + ": '" + planned.spec.name + "'" +
         (one ? "" : ", matrix " + std::to_string(matrix) + " of " + std::to_string(planned.spec.shape[0]));
}

void ThrowNanExponent(const PlacedMatrix& place, std::int64_t element) {
  throw Error(ErrorCode::kCorrupt,
              place.ToString() + " expected powers of two, got NaN at element " + std::to_string(element));
}

void ThrowWrongDerived(const std::string& layer, const std::string& tensor, std::int64_t element) {
  throw Error(ErrorCode::kCorrupt, "layer " + layer + ": '" + tensor +
                                       "', which derives from its parameters, expected finite values, got NaN or "
                                       "infinity at element " +
                                       std::to_string(element));
}

}  // namespace layercast
