#include "engine_side/engine/weight_view.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "engine_side/engine/activations.h"
#include "src/base/check.h"
#include "src/tensor/element.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/engine/weight_view.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
#include "hwy/highway.h"
// After highway.h: it is per target too.
#include "engine_side/engine/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

using Table = std::array<float, 256>;

// One chunk of elements -> fp32.
struct FromF32 {
  using T = float;
  template <class D>
  hn::Vec<D> operator()(D d, const T* from, const Table&) const {
    return hn::LoadU(d, from);
  }
};
struct FromBF16 {
  using T = std::uint16_t;
  template <class D>
  hn::Vec<D> operator()(D d, const T* from, const Table&) const {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<T, D> dn;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(dn, from))));
  }
};
struct FromF16 {
  using T = hwy::float16_t;
  template <class D>
  hn::Vec<D> operator()(D d, const T* from, const Table&) const {
    const hn::Rebind<T, D> dn;
    return hn::PromoteTo(d, hn::LoadU(dn, from));
  }
};
// By table: exact for subnormals and NaN, without the cost of subnormal fp32 operands.
struct FromF8 {
  using T = std::uint8_t;
  template <class D>
  hn::Vec<D> operator()(D d, const T* from, const Table& table) const {
    const hn::RebindToSigned<D> di;
    const hn::Rebind<T, D> dn;
    return hn::GatherIndex(d, table.data(), hn::PromoteTo(di, hn::LoadU(dn, from)));
  }
};

// to[0, Padded(count)) := elements * scale, zeros behind them.
template <class From>
void Expand(const From& convert, const Table& table, const std::byte* bytes, std::size_t count, float scale,
            float* to) {
  using T = typename From::T;
  const FloatTag d;
  const auto scales = hn::Set(d, scale);
  HWY_ALIGN T rest[kChunk] = {};
  for (std::size_t i = 0; i < count; i += kChunk) {
    const T* from = reinterpret_cast<const T*>(bytes) + i;
    if (count - i < kChunk) {
      std::memcpy(static_cast<void*>(rest), from, (count - i) * sizeof(T));
      from = rest;
    }
    for (std::size_t j = 0; j < kChunk; j += hn::Lanes(d)) {
      hn::StoreU(hn::Mul(convert(d, from + j, table), scales), d, to + i + j);
    }
  }
}

}  // namespace

void ExpandElements(DType dtype, const Table& table, const std::byte* bytes, std::size_t count, float scale,
                    float* to) {
  switch (dtype) {
    case DType::kF32: return Expand(FromF32(), table, bytes, count, scale, to);
    case DType::kBF16: return Expand(FromBF16(), table, bytes, count, scale, to);
    case DType::kF16: return Expand(FromF16(), table, bytes, count, scale, to);
    case DType::kF8E4M3: return Expand(FromF8(), table, bytes, count, scale, to);
    default: LAYERCAST_CHECK(false && "a weight of another dtype");
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {
namespace {

HWY_EXPORT(ExpandElements);

using Table = std::array<float, 256>;

const Table& F8E4M3Values() {
  static const Table table = [] {
    Table values{};
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(DecodeElement(DType::kF8E4M3, i));
    return values;
  }();
  return table;
}

float ScaleAt(const WeightView& weight, std::size_t index) {
  float scale = 0.0F;
  std::memcpy(&scale, weight.scales + index * sizeof(float), sizeof(float));
  return scale;
}

}  // namespace

void ReadPaddedRow(const WeightView& weight, std::size_t row, float* to) {
  const auto expand = [&](const std::byte* bytes, std::size_t count, float scale, float* values) {
    HWY_DYNAMIC_DISPATCH(ExpandElements)(weight.dtype, F8E4M3Values(), bytes, count, scale, values);
  };
  const std::size_t element = static_cast<std::size_t>(BitsPerElement(weight.dtype)) / 8;
  const std::byte* from = weight.values + row * weight.cols * element;
  switch (weight.scale) {
    case WeightView::Scale::kNone: return expand(from, weight.cols, 1.0F, to);
    case WeightView::Scale::kTensor: return expand(from, weight.cols, ScaleAt(weight, 0), to);
    case WeightView::Scale::kRow: return expand(from, weight.cols, ScaleAt(weight, row), to);
    case WeightView::Scale::kBlock: break;
  }
  constexpr std::size_t kBlock = WeightView::kBlockSize;
  const std::size_t blocks = (weight.cols + kBlock - 1) / kBlock;
  for (std::size_t b = 0; b < blocks; ++b) {
    const std::size_t count = std::min(kBlock, weight.cols - b * kBlock);
    expand(from + b * kBlock * element, count, ScaleAt(weight, row / kBlock * blocks + b), to + b * kBlock);
  }
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
