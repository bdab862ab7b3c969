// Reading a row of a weight: values of any type become fp32, times their scales. One decoder for each type of value.
#include "engine_side/engine/weight_view.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

#include "src/base/check.h"
#include "src/tensor/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/engine/weight_view.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
#include "hwy/highway.h"

#ifndef LAYERCAST_WEIGHT_VIEW_TABLES  // once, not once per target
#define LAYERCAST_WEIGHT_VIEW_TABLES
namespace layercast {

// The values of types of few bits by their codes: exact for subnormals and NaN, without the cost of subnormal operands.
struct ValueTables {
  std::array<float, 256> f8;
  std::array<float, 16> f4;
};

}  // namespace layercast
#endif

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, kRowPad>;

// Decoders: a vector of elements, from element `i` on, as fp32.
template <class Element>
const Element* At(const std::byte* row, std::size_t i) {
  return reinterpret_cast<const Element*>(row) + i;
}

struct FromF32 {
  template <class D>
  hn::Vec<D> operator()(D d, const std::byte* row, std::size_t i) const {
    return hn::LoadU(d, At<float>(row, i));
  }
};
struct FromBF16 {
  template <class D>
  hn::Vec<D> operator()(D d, const std::byte* row, std::size_t i) const {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<std::uint16_t, D> dn;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dn, At<std::uint16_t>(row, i)))));
  }
};
struct FromF16 {
  template <class D>
  hn::Vec<D> operator()(D d, const std::byte* row, std::size_t i) const {
    const hn::Rebind<hwy::float16_t, D> dn;
    return hn::PromoteTo(d, hn::LoadU(dn, At<hwy::float16_t>(row, i)));
  }
};
struct FromI8 {
  template <class D>
  hn::Vec<D> operator()(D d, const std::byte* row, std::size_t i) const {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::int8_t, D> dn;
    return hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(dn, At<std::int8_t>(row, i))));
  }
};
struct FromF8 {
  const float* values;

  template <class D>
  hn::Vec<D> operator()(D d, const std::byte* row, std::size_t i) const {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint8_t, D> dn;
    return hn::GatherIndex(d, values, hn::PromoteTo(di, hn::LoadU(dn, At<std::uint8_t>(row, i))));
  }
};
struct FromF4 {
  const float* values;

  template <class D>
  hn::Vec<D> operator()(D d, const std::byte* row, std::size_t i) const {
    const auto* bytes = At<std::uint8_t>(row, i / 2);
#if HWY_TARGET == HWY_SCALAR
    return hn::Set(d, values[*bytes >> (i % 2 * 4) & 15]);
#else
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint8_t, D> d8;
    const hn::Half<decltype(d8)> half;
    const auto both = hn::ZeroExtendVector(d8, hn::LoadU(half, bytes));
    const auto codes = hn::InterleaveLower(d8, hn::And(both, hn::Set(d8, std::uint8_t{15})), hn::ShiftRight<4>(both));
    return hn::GatherIndex(d, values, hn::PromoteTo(di, codes));
#endif
  }
};

float ScaleAt(const ScaleGrid& grid, std::size_t index, const ValueTables& tables) {
  float scale = 0.0F;
  switch (grid.dtype) {
    case DType::kF32: std::memcpy(&scale, grid.scales + index * sizeof(float), sizeof(float)); return scale;
    case DType::kF8E4M3: return tables.f8[std::to_integer<std::size_t>(grid.scales[index])];
    default: break;
  }
  LAYERCAST_CHECK(grid.dtype == DType::kF8E8M0);
  const auto exponent = std::to_integer<std::uint32_t>(grid.scales[index]);
  return std::bit_cast<float>(exponent == 0 ? 0x00400000U : exponent << 23);  // 2^-127 is subnormal
}

struct RowBytes {
  const std::byte* begin;
  const std::byte* end;
  std::size_t bits;  // of an element

  const std::byte* At(std::size_t element) const { return begin + element * bits / 8; }
};

// to[first, first + count) := elements * scale, and zeros beyond the row's end up to a multiple of kRowPad.
template <class From>
void Expand(const From& decode, const RowBytes& row, std::size_t first, std::size_t count, float scale, float* to) {
  const FloatTag d;
  const auto scales = hn::Set(d, scale);
  for (std::size_t i = first; i < first + count; i += kRowPad) {
    const std::byte* from = row.begin;
    std::size_t at = i;
    HWY_ALIGN std::byte rest[kRowPad * sizeof(float)] = {};
    if (row.At(i + kRowPad) > row.end) {
      std::copy(row.At(i), row.end, rest);
      from = rest;
      at = 0;
    }
    for (std::size_t j = 0; j < kRowPad; j += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(decode(d, from, at + j), scales), d, to + i + j);
    }
  }
}

template <class From>
void ExpandBlocks(const From& decode, const WeightView& weight, std::size_t row, const ValueTables& tables, float* to) {
  const auto bits = static_cast<std::size_t>(BitsPerElement(weight.dtype));
  const std::size_t row_bytes = weight.cols * bits / 8;
  const std::byte* begin = weight.values + row * row_bytes;
  const RowBytes bytes{begin, begin + row_bytes, bits};
  const ScaleGrid& grid = weight.scale;
  if (grid.scales == nullptr) return Expand(decode, bytes, 0, weight.cols, 1.0F, to);
  float global = 1.0F;
  if (grid.global != nullptr) std::memcpy(&global, grid.global, sizeof(float));
  const std::size_t blocks = (weight.cols + grid.cols - 1) / grid.cols;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t first = b * grid.cols;
    const float scale = ScaleAt(grid, row / grid.rows * blocks + b, tables) * global;
    Expand(decode, bytes, first, std::min(grid.cols, weight.cols - first), scale, to);
  }
}

}  // namespace

void ExpandRow(const WeightView& weight, std::size_t row, const ValueTables& tables, float* to) {
  switch (weight.dtype) {
    case DType::kF32: return ExpandBlocks(FromF32(), weight, row, tables, to);
    case DType::kBF16: return ExpandBlocks(FromBF16(), weight, row, tables, to);
    case DType::kF16: return ExpandBlocks(FromF16(), weight, row, tables, to);
    case DType::kF8E4M3: return ExpandBlocks(FromF8{tables.f8.data()}, weight, row, tables, to);
    case DType::kI8: return ExpandBlocks(FromI8(), weight, row, tables, to);
    case DType::kF4: return ExpandBlocks(FromF4{tables.f4.data()}, weight, row, tables, to);
    default: LAYERCAST_CHECK(false && "a weight of another dtype");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {
namespace {

HWY_EXPORT(ExpandRow);

const ValueTables& Tables() {
  static const ValueTables tables = [] {
    ValueTables made{};
    for (std::size_t i = 0; i < made.f8.size(); ++i) made.f8[i] = static_cast<float>(DecodeElement(DType::kF8E4M3, i));
    for (std::size_t i = 0; i < made.f4.size(); ++i) made.f4[i] = static_cast<float>(DecodeElement(DType::kF4, i));
    return made;
  }();
  return tables;
}

}  // namespace

void ReadPaddedRow(const WeightView& weight, std::size_t row, float* values) {
  HWY_DYNAMIC_DISPATCH(ExpandRow)(weight, row, Tables(), values);
}

void ReadRow(const WeightView& weight, std::size_t row, float* values) {
  std::vector<float> padded((weight.cols + kRowPad - 1) / kRowPad * kRowPad);
  ReadPaddedRow(weight, row, padded.data());
  std::copy_n(padded.begin(), weight.cols, values);
}

}  // namespace layercast
#endif  // HWY_ONCE
