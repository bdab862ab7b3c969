#include "engine_side/reload/work/check_scales.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/tensor/cast.h"
#include "src/tensor/value_tables.h"

namespace layercast {
namespace {

void ReadValues(DType dtype, const std::byte* from, std::span<float> values) {
  if (dtype != DType::kF8E4M3) {
    Cast(dtype, from, DType::kF32, reinterpret_cast<std::byte*>(values.data()), values.size());
    return;
  }
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = GetValueTables().f8_e4m3[std::to_integer<int>(from[i])];
}

}  // namespace

void CheckScales(std::span<const float> scales, Sign sign, std::string_view layer, std::string_view tensor) {
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const bool fits = sign == Sign::kAny || (sign == Sign::kPositive ? scales[i] > 0.0F : scales[i] >= 0.0F);
    if (fits && std::isfinite(scales[i])) continue;
    throw Error(ErrorCode::kCorrupt, "layer " + std::string(layer) + ": '" + std::string(tensor) +
                                         "': expected finite scales " +
                                         (sign == Sign::kPositive ? "above zero" : "that are not negative") + ", got " +
                                         std::to_string(scales[i]) + " at element " + std::to_string(i));
  }
}

void CheckScales(DType dtype, const std::byte* scales, std::size_t count, Sign sign, std::string_view layer,
                 std::string_view tensor) {
  std::vector<float> values(count);
  ReadValues(dtype, scales, values);
  CheckScales(values, sign, layer, tensor);
}

void CheckPowersOfTwo(std::span<const std::byte> scales, std::string_view layer, std::string_view tensor) {
  for (std::size_t i = 0; i < scales.size() / sizeof(float); ++i) {
    float scale = 0.0F;
    std::memcpy(&scale, &scales[i * sizeof(scale)], sizeof(scale));
    int exponent = 0;
    if (std::frexp(scale, &exponent) == 0.5F) continue;
    throw Error(ErrorCode::kCorrupt, "layer " + std::string(layer) + ": '" + std::string(tensor) +
                                         "': expected scales that are powers of two, got " + std::to_string(scale) +
                                         " at element " + std::to_string(i));
  }
}

std::ptrdiff_t FindNanExponent(std::span<const std::byte> exponents) {
  constexpr std::byte kNan{0xFF};
  const auto nan = std::ranges::find(exponents, kNan);
  return nan == exponents.end() ? -1 : nan - exponents.begin();
}

}  // namespace layercast
