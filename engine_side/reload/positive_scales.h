// The one word on scales that cannot be, whoever brings them.
#pragma once

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <string_view>

#include "layercast/error.h"

namespace layercast {

// Throws kCorrupt "layer LAYER: 'TENSOR': expected finite scales above zero, got nan".
inline void CheckPositiveScales(std::span<const float> scales, std::string_view layer, std::string_view tensor) {
  const auto wrong = std::ranges::find_if_not(scales, [](float scale) { return scale > 0.0F && std::isfinite(scale); });
  if (wrong == scales.end()) return;
  throw Error(ErrorCode::kCorrupt, "layer " + std::string(layer) + ": '" + std::string(tensor) +
                                       "': expected finite scales above zero, got " + std::to_string(*wrong));
}

}  // namespace layercast
