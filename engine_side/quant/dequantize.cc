#include "engine_side/quant/dequantize.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "src/base/check.h"
#include "src/base/rounding.h"
#include "src/tensor/cast.h"
#include "src/tensor/value_tables.h"

namespace layercast {
namespace {

// The value that each code stands for, where a code takes a byte, or half a byte (f4, and packed integers of 4 bits).
std::array<float, 256> ValuesOf(DType elements, int packed_bits) {
  const ValueTables& tables = GetValueTables();
  if (packed_bits != 0) {
    std::array<float, 256> value_of{};
    const int zero = 1 << (packed_bits - 1);  // the code for 0: half of all codes are below it
    for (int code = 0; code < 2 * zero; ++code) {
      value_of[static_cast<std::size_t>(code)] = static_cast<float>(code - zero);
    }
    return value_of;
  }
  if (elements == DType::kF8E4M3) return tables.f8_e4m3;
  std::array<float, 256> value_of{};
  for (std::size_t code = 0; code < value_of.size(); ++code) {
    value_of[code] =
        elements == DType::kF4 ? tables.f4[code & 15U] : static_cast<float>(static_cast<std::int8_t>(code));
  }
  return value_of;
}

std::uint8_t CodeAt(const QuantizedWeight& weight, std::int64_t row, std::int64_t col) {
  const std::int64_t index = row * weight.cols + col;
  if (weight.elements != DType::kF4 && weight.packed_bits != 4) return weight.codes[index];
  const std::uint8_t pair = weight.codes[weight.pairs_rows ? row / 2 * weight.cols + col : index / 2];
  const bool low = (weight.pairs_rows ? row : index) % 2 == 0;
  return static_cast<std::uint8_t>(low ? pair & 15U : pair >> 4U);
}

}  // namespace

bool Dequantize(const QuantizedWeight& weight, DType dtype, std::byte* values, WorkerPool& pool) {
  if (weight.rows == 0 || weight.cols == 0) return true;
  const std::array<float, 256> value_of = ValuesOf(weight.elements, weight.packed_bits);
  const std::int64_t blocks_per_row = CeilDivide(weight.cols, weight.block_cols);
  const std::int64_t blocks = CeilDivide(weight.rows, weight.block_rows) * blocks_per_row;
  LAYERCAST_CHECK(std::ssize(weight.scales) >= blocks);
  LAYERCAST_CHECK(weight.zero_points.empty() || std::ssize(weight.zero_points) >= blocks);
  const std::int64_t row_bytes = weight.cols * BitsPerElement(dtype) / 8;
  std::atomic<bool> finite = true;
  pool.For(static_cast<std::size_t>(weight.rows), [&](std::size_t index) {
    const auto row = static_cast<std::int64_t>(index);
    const std::int64_t first = row / weight.block_rows * blocks_per_row;
    const float* scales = weight.scales.data() + first;
    const float* zero_points = weight.zero_points.empty() ? nullptr : weight.zero_points.data() + first;
    std::vector<float> products(static_cast<std::size_t>(weight.cols));
    for (std::int64_t c = 0; c < weight.cols; ++c) {
      const std::int64_t block = c / weight.block_cols;
      const float zero_point = zero_points == nullptr ? 0.0F : zero_points[block];
      products[static_cast<std::size_t>(c)] = (value_of[CodeAt(weight, row, c)] - zero_point) * scales[block];
    }
    const auto* const from = reinterpret_cast<const std::byte*>(products.data());
    if (!Cast(DType::kF32, from, dtype, values + row * row_bytes, products.size())) finite = false;
  });
  return finite;
}

}  // namespace layercast
