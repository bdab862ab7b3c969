#include "engine_side/engine/cpu/kernels/weight_view.h"

#include <algorithm>
#include <cstring>

#include "engine_side/engine/cpu/kernels/activations.h"
#include "src/base/check.h"
#include "src/tensor/value_tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/engine/cpu/kernels/weight_view.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
#include "hwy/highway.h"
// Included after highway.h, since these headers too are compiled for each target.
#include "engine_side/engine/cpu/kernels/element_decoders-inl.h"
#include "engine_side/engine/cpu/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

float LoadF32(const std::byte* from) {
  float value = 0.0F;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

float ScaleAt(const ScaleGrid& grid, std::size_t index, const ValueTables& tables) {
  switch (grid.dtype) {
    case DType::kF32: return LoadF32(grid.scales + index * sizeof(float));
    case DType::kF8E4M3: return tables.f8_e4m3[std::to_integer<std::size_t>(grid.scales[index])];
    case DType::kF8E8M0: return tables.f8_e8m0[std::to_integer<std::size_t>(grid.scales[index])];
    default: LAYERCAST_CHECK(false && "scales of another dtype");
  }
  return 0.0F;
}

template <class Decode>
HWY_INLINE void ExpandChunk(const Decode& decode, const std::byte* from, FloatVec scale, float* to) {
  const FloatTag d;
  for (std::size_t j = 0; j < kChunk; j += hn::Lanes(d)) hn::StoreU(hn::Mul(decode(d, from, j), scale), d, to + j);
}

// to[0, count) := the elements at `from` times the scale, followed by zeros up to whole chunks.
template <class Decode>
void Expand(const Decode& decode, const std::byte* from, std::size_t bits, std::size_t count, float scale, float* to) {
  const auto scales = hn::Set(FloatTag(), scale);
  std::size_t i = 0;
  for (; i + kChunk <= count; i += kChunk) ExpandChunk(decode, from + i * bits / 8, scales, to + i);
  if (i == count) return;
  HWY_ALIGN std::byte rest[kChunk * sizeof(float)] = {};
  std::memcpy(rest, from + i * bits / 8, (count - i) * bits / 8);
  ExpandChunk(decode, rest, scales, to + i);
}

template <class Decode>
void ExpandBlocks(const Decode& decode, const WeightView& weight, std::size_t row, const ValueTables& tables,
                  float* to) {
  const auto bits = static_cast<std::size_t>(BitsPerElement(weight.dtype));
  const std::byte* from = weight.values + row * ((weight.stride == 0 ? weight.cols : weight.stride) * bits / 8);
  const ScaleGrid& grid = weight.scale;
  if (grid.scales == nullptr) return Expand(decode, from, bits, weight.cols, 1.0F, to);
  LAYERCAST_CHECK(grid.cols % kChunk == 0 || grid.cols >= weight.cols);
  const float global = grid.global == nullptr ? 1.0F : LoadF32(grid.global);
  std::size_t block = row / grid.rows * ((weight.cols + grid.cols - 1) / grid.cols);
  for (std::size_t first = 0; first < weight.cols; first += grid.cols, ++block) {
    const std::size_t count = std::min(grid.cols, weight.cols - first);
    Expand(decode, from + first * bits / 8, bits, count, ScaleAt(grid, block, tables) * global, to + first);
  }
}

template <class Decode>
void ExpandEach(const Decode& decode, const WeightView& weight, std::size_t first, std::size_t count,
                const ValueTables& tables, float* to, std::size_t stride) {
  for (std::size_t i = 0; i < count; ++i) ExpandBlocks(decode, weight, first + i, tables, to + i * stride);
}

}  // namespace

void ExpandRows(const WeightView& weight, std::size_t first, std::size_t count, const ValueTables& tables, float* to,
                std::size_t stride) {
  const auto expand = [&](const auto& decode) { ExpandEach(decode, weight, first, count, tables, to, stride); };
  switch (weight.dtype) {
    case DType::kF32: return expand(FromF32());
    case DType::kBF16: return expand(FromBF16());
    case DType::kF16: return expand(FromF16());
    case DType::kF8E4M3: return expand(FromF8{tables.f8_e4m3.data()});
    case DType::kI8: return expand(FromI8());
    case DType::kF4: return expand(FromF4{tables.f4.data()});
    default: LAYERCAST_CHECK(false && "a weight of another dtype");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {
namespace {

HWY_EXPORT(ExpandRows);

}  // namespace

void ReadPaddedRow(const WeightView& weight, std::size_t row, float* values) {
  ReadPaddedRows(weight, row, 1, values, 0);
}

void ReadPaddedRows(const WeightView& weight, std::size_t first, std::size_t count, float* values, std::size_t stride) {
  HWY_DYNAMIC_DISPATCH(ExpandRows)(weight, first, count, GetValueTables(), values, stride);
}

void ReadRow(const WeightView& weight, std::size_t row, float* values) {
  std::vector<float> padded(Activations::Padded(weight.cols));
  ReadPaddedRow(weight, row, padded.data());
  std::copy_n(padded.begin(), weight.cols, values);
}

std::vector<float> ReadVector(const WeightView& weight) {
  LAYERCAST_CHECK(weight.rows == 1);
  std::vector<float> values(weight.cols);
  ReadRow(weight, 0, values.data());
  return values;
}

}  // namespace layercast
#endif  // HWY_ONCE
