#include "engine_side/model/tree/reciprocals.h"

#include <cmath>
#include <cstring>
#include <string>

#include "layercast/error.h"

namespace layercast {

std::vector<float> Reciprocals(const std::byte* numbers, std::size_t count) {
  std::vector<float> values(count);
  std::memcpy(values.data(), numbers, count * sizeof(float));
  for (float& value : values) {
    const float number = value;
    value = 1.0F / number;
    if (std::isfinite(number) && std::isfinite(value) && number > 0.0F) continue;
    throw Error(ErrorCode::kCorrupt,
                "expected a finite number above zero, whose reciprocal is the scale, got " + std::to_string(number));
  }
  return values;
}

}  // namespace layercast
