#include "engine_side/quant/reference.h"

#include <algorithm>
#include <cmath>

#include "engine_side/quant/fp8_scale.h"
#include "src/base/check.h"
#include "src/tensor/element.h"

namespace layercast {
namespace {

float Value(const MatrixView& weight, std::int64_t row, std::int64_t col) {
  return static_cast<float>(ElementValue(weight.dtype, weight.row(row), col));
}

struct Rectangle {
  std::int64_t row = 0, rows = 0, col = 0, cols = 0;
};

float Amax(const MatrixView& weight, const Rectangle& part) {
  float amax = 0.0F;
  for (std::int64_t r = part.row; r < part.row + part.rows; ++r) {
    for (std::int64_t c = part.col; c < part.col + part.cols; ++c)
      amax = std::max(amax, std::fabs(Value(weight, r, c)));
  }
  return amax;
}

// q = cvt(clamp(quotient(w))) over one rectangle.
template <class Quotient>
void Encode(const MatrixView& weight, const Rectangle& part, const Quotient& quotient, ReferenceResult& result) {
  for (std::int64_t r = part.row; r < part.row + part.rows; ++r) {
    for (std::int64_t c = part.col; c < part.col + part.cols; ++c) {
      const float clamped = std::clamp(quotient(Value(weight, r, c)), -kFp8Max, kFp8Max);
      result.values[static_cast<std::size_t>(r * weight.cols + c)] = EncodeE4M3(clamped);
    }
  }
}

ReferenceResult Allocate(const MatrixView& weight) {
  ReferenceResult result;
  result.values.resize(static_cast<std::size_t>(weight.rows * weight.cols));
  return result;
}

ReferenceResult PerTensor(const MatrixView& weight, const AmaxInput& input) {
  const Rectangle whole{0, weight.rows, 0, weight.cols};
  ReferenceResult result = Allocate(weight);
  const float amax = input.tensor >= 0.0F ? input.tensor : Amax(weight, whole);
  if (IsZeroTensor(amax)) {
    result.scales = {0.0F};
    return result;
  }
  const float scale = TensorScale(amax);
  const float reciprocal = 1.0F / scale;
  Encode(weight, whole, [=](float w) { return w * reciprocal; }, result);
  result.scales = {scale};
  return result;
}

ReferenceResult PerChannel(const MatrixView& weight, const AmaxInput& input) {
  ReferenceResult result = Allocate(weight);
  for (std::int64_t r = 0; r < weight.rows; ++r) {
    const Rectangle row{r, 1, 0, weight.cols};
    const float amax = input.rows.empty() ? Amax(weight, row) : input.rows[static_cast<std::size_t>(r)];
    const float scale = ChannelScale(amax);
    Encode(weight, row, [=](float w) { return w / scale; }, result);
    result.scales.push_back(scale);
  }
  return result;
}

ReferenceResult PerBlock(const MatrixView& weight, bool power_of_two) {
  ReferenceResult result = Allocate(weight);
  for (std::int64_t r = 0; r < weight.rows; r += kFp8Block) {
    for (std::int64_t c = 0; c < weight.cols; c += kFp8Block) {
      const Rectangle block{r, std::min(kFp8Block, weight.rows - r), c, std::min(kFp8Block, weight.cols - c)};
      const float scale = BlockScale(Amax(weight, block), power_of_two);
      const float reciprocal = 1.0F / scale;
      Encode(weight, block, [=](float w) { return w * reciprocal; }, result);
      result.scales.push_back(scale);
    }
  }
  return result;
}

}  // namespace

std::uint8_t EncodeE4M3(float value) {
  const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const double magnitude = std::fabs(static_cast<double>(value));
  if (!(magnitude <= 464.0)) return sign | 0x7f;
  // Codes count the multiples of 2^(exponent - 3); subnormals have the exponent of the smallest normal number.
  const int exponent = std::max(magnitude == 0.0 ? -6 : std::ilogb(magnitude), -6);
  const double multiple = std::nearbyint(std::ldexp(magnitude, 3 - exponent));  // to nearest, ties to even
  return static_cast<std::uint8_t>(sign | (8 * (exponent + 6) + static_cast<int>(multiple)));
}

ReferenceResult QuantizeSlowly(std::string_view name, const RecipeOptions& options, const MatrixView& weight,
                               const AmaxInput& amax) {
  if (name == "fp8_per_tensor") return PerTensor(weight, amax);
  if (name == "fp8_per_channel") return PerChannel(weight, amax);
  LAYERCAST_CHECK(name == "fp8_per_block");
  return PerBlock(weight, options.power_of_two_scales);
}

}  // namespace layercast
