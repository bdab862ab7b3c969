#include "engine_side/reload/prequantized/zero_points.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine_side/reload/prequantized/quantized_scales.h"
#include "layercast/error.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

constexpr int kBitsOfWord = 32;

std::int64_t RowsOfWord(int bits) { return bits == 0 ? 1 : kBitsOfWord / bits; }

// Packed zero points are offset by half their range, as the codes are.
float Unpacked(std::uint32_t word, std::int64_t index, int bits) {
  const std::uint32_t code = word >> (static_cast<unsigned>(index) * static_cast<unsigned>(bits)) & ((1U << bits) - 1U);
  return static_cast<float>(static_cast<int>(code) - (1 << (bits - 1)));
}

}  // namespace

void CheckZeroPoints(const Checkpoint& checkpoint, const QuantizedLayer& layer, const QuantizedLayer::Part& part) {
  const int bits = layer.layer->quantized_form()->packed_bits;
  const Shape scales = QuantizedScales(checkpoint, layer).ShapeOf(part);
  const TensorSpec expected{
      {}, bits == 0 ? DType::kI8 : DType::kI32, {CeilDivide(scales[0], RowsOfWord(bits)), scales[1]}};
  const TensorSpec& got = checkpoint.specs()[part.zero_point];
  if (got.dtype == expected.dtype && got.shape == expected.shape) return;
  throw Error(ErrorCode::kInvalidArgument,
              "layer " + layer.path + ": '" + got.name + "' expected " + Describe(expected) + ", got " + Describe(got));
}

std::vector<float> ZeroPointsOf(const Checkpoint& checkpoint, const QuantizedLayer& layer,
                                const QuantizedLayer::Part& part) {
  CheckZeroPoints(checkpoint, layer, part);
  const int bits = layer.layer->quantized_form()->packed_bits;
  const Shape scales = QuantizedScales(checkpoint, layer).ShapeOf(part);
  const std::int64_t rows = scales[0];
  const std::int64_t cols = scales[1];
  const std::int64_t of_word = RowsOfWord(bits);
  const NamedTensor tensor = checkpoint.Tensor(std::size_t{part.zero_point});
  std::vector<float> zero_points;
  zero_points.reserve(static_cast<std::size_t>(rows * cols));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t col = 0; col < cols; ++col) {
      const std::byte* at = tensor.tensor.data + (row / of_word * cols + col) * BitsPerElement(tensor.tensor.dtype) / 8;
      if (bits == 0) {
        zero_points.push_back(static_cast<float>(static_cast<std::int8_t>(*at)));
        continue;
      }
      std::uint32_t word = 0;
      std::memcpy(&word, at, sizeof(word));
      zero_points.push_back(Unpacked(word, row % of_word, bits));
    }
  }
  return zero_points;
}

}  // namespace layercast
