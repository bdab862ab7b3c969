#include "engine_side/quant/dequantize.h"

#include <algorithm>
#include <array>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/scales.h"
#include "src/base/check.h"
#include "src/tensor/cast.h"
#include "src/tensor/element.h"

namespace layercast {
namespace {

constexpr std::size_t kCodes = 256;

std::array<float, kCodes> Values() {
  std::array<float, kCodes> values{};
  for (std::size_t code = 0; code < kCodes; ++code) {
    values[code] = static_cast<float>(DecodeElement(DType::kF8E4M3, code));
  }
  return values;
}

}  // namespace

void Dequantize(const Fp8Weight& weight, DType dtype, std::byte* values, WorkerPool& pool) {
  if (weight.rows == 0 || weight.cols == 0) return;
  const std::array<float, kCodes> value_of = Values();
  const std::int64_t blocks_per_row = (weight.cols + weight.block_cols - 1) / weight.block_cols;
  LAYERCAST_CHECK(static_cast<std::int64_t>(weight.scales.size()) >=
                  (weight.rows + weight.block_rows - 1) / weight.block_rows * blocks_per_row);
  const std::int64_t row_bytes = weight.cols * BitsPerElement(dtype) / 8;
  pool.For(static_cast<std::size_t>(weight.rows), [&](std::size_t index) {
    const auto row = static_cast<std::int64_t>(index);
    const std::uint8_t* codes = weight.codes + row * weight.cols;
    const float* scales = weight.scales.data() + row / weight.block_rows * blocks_per_row;
    std::vector<float> products(static_cast<std::size_t>(weight.cols));
    for (std::int64_t c = 0; c < weight.cols; ++c) {
      products[static_cast<std::size_t>(c)] = value_of[codes[c]] * scales[c / weight.block_cols];
    }
    Cast(DType::kF32, reinterpret_cast<const std::byte*>(products.data()), dtype, values + row * row_bytes,
         products.size());
  });
}

void Rescale(const std::uint8_t* codes, std::size_t count, float from, float to, std::uint8_t* rescaled) {
  std::array<std::uint8_t, kCodes> code_of{};
  const std::array<float, kCodes> value_of = Values();
  for (std::size_t code = 0; code < kCodes; ++code) {
    const float quotient = value_of[code] * from * (1.0F / to);
    const bool same = from == to || to == 0.0F;
    code_of[code] = same ? static_cast<std::uint8_t>(code) : EncodeE4M3(std::clamp(quotient, -kFp8Max, kFp8Max));
  }
  std::transform(codes, codes + count, rescaled, [&](std::uint8_t code) { return code_of[code]; });
}

}  // namespace layercast
