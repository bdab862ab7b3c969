#include "engine_side/quant/dequantize.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "engine_side/quant/codes.h"
#include "engine_side/quant/scales.h"
#include "src/base/check.h"
#include "src/base/rounding.h"
#include "src/tensor/cast.h"
#include "src/tensor/value_tables.h"

namespace layercast {
namespace {

// The value of a byte's, or (f4) of half a byte's code.
std::array<float, 256> ValuesOf(DType elements, int packed_bits) {
  const ValueTables& tables = GetValueTables();
  if (packed_bits != 0) {
    std::array<float, 256> value_of{};
    const int zero = 1 << (packed_bits - 1);  // the code of 0: half of all codes are below
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

constexpr std::size_t kNvfp4BlockBytes = kNvfp4Block / 2;

// One block, of scales that are `factor` times as small. A scale that is NaN stays, for others to refuse.
void RescaleBlock(const std::uint8_t* codes, std::uint8_t scale, float from, float factor, std::uint8_t* new_codes,
                  std::uint8_t* new_scale) {
  const ValueTables& tables = GetValueTables();
  const float scale_value = tables.f8_e4m3[scale];
  std::memcpy(new_codes, codes, kNvfp4BlockBytes);
  *new_scale = scale;
  if (std::isnan(scale_value)) return;
  std::array<float, kNvfp4Block> values{};
  float amax = 0.0F;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const unsigned code = i % 2 == 0 ? codes[i / 2] & 15U : codes[i / 2] >> 4U;
    values[i] = tables.f4[code] * (scale_value * from);
    amax = std::max(amax, std::abs(values[i]));
  }
  *new_scale = EncodeE4M3(factor * (amax / kFp4Max));
  const float new_value = tables.f8_e4m3[*new_scale];
  const auto encode = [&](float value) {
    return new_value == 0.0F ? std::uint8_t{0} : EncodeE2M1(value * (factor / new_value));
  };
  for (std::size_t i = 0; i < kNvfp4BlockBytes; ++i) {
    new_codes[i] = static_cast<std::uint8_t>(encode(values[2 * i]) | encode(values[2 * i + 1]) << 4U);
  }
}

}  // namespace

void RescaleNvfp4(const std::uint8_t* codes, const std::uint8_t* scales, std::size_t blocks, float from, float to,
                  const Nvfp4Codes& rescaled) {
  const float factor = 1.0F / to;
  if (from == to) {
    std::memcpy(rescaled.codes, codes, blocks * kNvfp4BlockBytes);
    std::memcpy(rescaled.scales, scales, blocks);
  } else if (!IsFinite(factor * 512.0F)) {  // as IsZeroNvfp4
    std::memset(rescaled.codes, 0, blocks * kNvfp4BlockBytes);
    std::memset(rescaled.scales, 0, blocks);
  } else {
    for (std::size_t i = 0; i < blocks; ++i) {
      RescaleBlock(codes + i * kNvfp4BlockBytes, scales[i], from, factor, rescaled.codes + i * kNvfp4BlockBytes,
                   rescaled.scales + i);
    }
  }
}

void Dequantize(const QuantizedWeight& weight, DType dtype, std::byte* values, WorkerPool& pool) {
  if (weight.rows == 0 || weight.cols == 0) return;
  const std::array<float, 256> value_of = ValuesOf(weight.elements, weight.packed_bits);
  const std::int64_t blocks_per_row = CeilDivide(weight.cols, weight.block_cols);
  LAYERCAST_CHECK(static_cast<std::int64_t>(weight.scales.size()) >=
                  CeilDivide(weight.rows, weight.block_rows) * blocks_per_row);
  const std::int64_t row_bytes = weight.cols * BitsPerElement(dtype) / 8;
  pool.For(static_cast<std::size_t>(weight.rows), [&](std::size_t index) {
    const auto row = static_cast<std::int64_t>(index);
    const float* scales = weight.scales.data() + row / weight.block_rows * blocks_per_row;
    std::vector<float> products(static_cast<std::size_t>(weight.cols));
    for (std::int64_t c = 0; c < weight.cols; ++c) {
      products[static_cast<std::size_t>(c)] = value_of[CodeAt(weight, row, c)] * scales[c / weight.block_cols];
    }
    Cast(DType::kF32, reinterpret_cast<const std::byte*>(products.data()), dtype, values + row * row_bytes,
         products.size());
  });
}

void Rescale(const std::uint8_t* codes, std::size_t count, float from, float to, std::uint8_t* rescaled) {
  const std::array<float, 256>& value_of = GetValueTables().f8_e4m3;
  std::array<std::uint8_t, 256> code_of{};
  for (std::size_t code = 0; code < code_of.size(); ++code) {
    const float quotient = value_of[code] * from * (1.0F / to);
    const bool same = from == to || to == 0.0F;
    code_of[code] = same ? static_cast<std::uint8_t>(code) : EncodeE4M3(std::clamp(quotient, -kFp8Max, kFp8Max));
  }
  std::transform(codes, codes + count, rescaled, [&](std::uint8_t code) { return code_of[code]; });
}

}  // namespace layercast
