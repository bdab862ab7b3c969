// The one word on scales that cannot be, whoever brings them.
#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "layercast/error.h"
#include "layercast/model/parameter.h"

namespace layercast {

// Throws kCorrupt "layer LAYER: 'TENSOR': expected finite scales above zero, got nan at element 3".
inline void CheckScales(std::span<const float> scales, Sign sign, std::string_view layer, std::string_view tensor) {
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const bool fits = sign == Sign::kAny || (sign == Sign::kPositive ? scales[i] > 0.0F : scales[i] >= 0.0F);
    if (fits && std::isfinite(scales[i])) continue;
    throw Error(ErrorCode::kCorrupt, "layer " + std::string(layer) + ": '" + std::string(tensor) +
                                         "': expected finite scales " +
                                         (sign == Sign::kPositive ? "above zero" : "that are not negative") + ", got " +
                                         std::to_string(scales[i]) + " at element " + std::to_string(i));
  }
}

}  // namespace layercast
