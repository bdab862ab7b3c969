// Everything of a forward pass that works on one token's row at a time: rounding, normalization, rotation, the gated
// activation, attention.
#include <algorithm>
#include <cmath>
#include <limits>

#include "engine_side/engine/kernels.h"
#include "src/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/engine/row_kernels.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
#include "hwy/highway.h"
// After highway.h: it is per target too.
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr std::size_t kChunk = Activations::kPad;
using FloatTag = hn::CappedTag<float, kChunk>;
using FloatVec = hn::Vec<FloatTag>;

FloatVec RoundBF16(FloatTag d, FloatVec v) {
  const hn::RebindToUnsigned<FloatTag> du;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
  const auto rounded = hn::And(hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffU))), hn::Set(du, 0xffff0000U));
  return hn::IfThenElse(hn::IsNaN(v), v, hn::BitCast(d, rounded));
}

FloatVec RoundF16(FloatTag d, FloatVec v) {
  const hn::Rebind<hwy::float16_t, FloatTag> dh;
  return hn::PromoteTo(d, hn::DemoteTo(dh, v));
}

FloatVec Round(DType dtype, FloatTag d, FloatVec v) {
  if (dtype == DType::kBF16) return RoundBF16(d, v);
  if (dtype == DType::kF16) return RoundF16(d, v);
  return v;
}

// A vector from values + i, zero where that is past the end.
FloatVec LoadRest(FloatTag d, std::span<const float> values, std::size_t i) {
  if (i + hn::Lanes(d) <= values.size()) return hn::LoadU(d, values.data() + i);
  HWY_ALIGN float rest[kChunk] = {};
  std::copy(values.begin() + static_cast<std::ptrdiff_t>(i), values.end(), rest);
  return hn::Load(d, rest);
}

// Of a vector, what is not past the end, to values + i.
void StoreRest(FloatTag d, FloatVec v, std::span<float> values, std::size_t i) {
  if (i + hn::Lanes(d) <= values.size()) return hn::StoreU(v, d, values.data() + i);
  HWY_ALIGN float rest[kChunk];
  hn::Store(v, d, rest);
  std::copy_n(rest, values.size() - i, values.data() + i);
}

// values[i] := function(i, values[i]), a vector at a time.
template <class Function>
void Transform(std::span<float> values, const Function& function) {
  const FloatTag d;
  for (std::size_t i = 0; i < values.size(); i += hn::Lanes(d)) {
    StoreRest(d, function(i, LoadRest(d, values, i)), values, i);
  }
}

float Dot(const float* a, const float* b, std::size_t padded) {
  const FloatTag d;
  auto sum = hn::Zero(d);
  for (std::size_t i = 0; i < padded; i += hn::Lanes(d)) {
    sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace

void RoundValues(DType dtype, std::span<float> values) {
  const FloatTag d;
  Transform(values, [&](std::size_t, FloatVec v) { return Round(dtype, d, v); });
}

void RmsNormRow(std::span<const float> x, std::span<const float> weight, float epsilon, DType dtype,
                std::span<float> y) {
  const FloatTag d;
  auto squares = hn::Zero(d);
  for (std::size_t i = 0; i < x.size(); i += hn::Lanes(d)) {
    const auto v = LoadRest(d, x, i);
    squares = hn::MulAdd(v, v, squares);
  }
  const float mean = hn::GetLane(hn::SumOfLanes(d, squares)) / static_cast<float>(x.size());
  const auto factor = hn::Set(d, 1.0F / std::sqrt(mean + epsilon));
  std::copy(x.begin(), x.end(), y.begin());
  Transform(y, [&](std::size_t i, FloatVec v) {
    return Round(dtype, d, hn::Mul(Round(dtype, d, hn::Mul(v, factor)), LoadRest(d, weight, i)));
  });
}

// first * cos - second * sin and second * cos + first * sin, each product and each sum rounded.
void RotateHead(std::span<float> head, std::span<const float> cos, std::span<const float> sin, DType dtype) {
  const FloatTag d;
  const std::size_t half = head.size() / 2;
  const std::span<float> first = head.first(half);
  const std::span<float> second = head.last(half);
  for (std::size_t i = 0; i < half; i += hn::Lanes(d)) {
    const auto a = LoadRest(d, first, i);
    const auto b = LoadRest(d, second, i);
    const auto c = LoadRest(d, cos, i);
    const auto s = LoadRest(d, sin, i);
    const auto rotated = [&](FloatVec x, FloatVec y) {
      return Round(dtype, d, hn::Add(Round(dtype, d, hn::Mul(x, c)), Round(dtype, d, hn::Mul(y, s))));
    };
    StoreRest(d, rotated(a, hn::Neg(b)), first, i);
    StoreRest(d, rotated(b, a), second, i);
  }
}

void SiluMultiplyRow(std::span<float> gate, std::span<const float> up, DType dtype) {
  const FloatTag d;
  const auto one = hn::Set(d, 1.0F);
  const auto largest = hn::Set(d, 88.0F);  // whose exponential is still finite; silu is -0 long before
  Transform(gate, [&](std::size_t i, FloatVec v) {
    const auto silu = hn::Div(v, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(v), largest))));
    return Round(dtype, d, hn::Mul(Round(dtype, d, silu), LoadRest(d, up, i)));
  });
}

void AttendHead(const float* query, const HeadRows& keys, const HeadRows& values, float scale, std::size_t padded,
                float* scores, float* out) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  const std::size_t padded_count = Padded(keys.count);
  float largest = -std::numeric_limits<float>::infinity();
  for (std::size_t j = 0; j < keys.count; ++j) {
    scores[j] = Dot(query, keys.first + j * keys.stride, padded) * scale;
    largest = std::max(largest, scores[j]);
  }
  std::fill(scores + keys.count, scores + padded_count, -std::numeric_limits<float>::infinity());
  auto sums = hn::Zero(d);
  for (std::size_t j = 0; j < padded_count; j += lanes) {
    const auto score = hn::LoadU(d, scores + j);
    // Highway's Exp turns NaN into 0, which would hide a poisoned key.
    const auto weight = hn::IfThenElse(hn::IsNaN(score), score, hn::Exp(d, hn::Sub(score, hn::Set(d, largest))));
    hn::StoreU(weight, d, scores + j);
    sums = hn::Add(sums, weight);
  }
  const auto total = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sums)));
  for (std::size_t c = 0; c < padded; c += lanes) {
    auto sum = hn::Zero(d);
    for (std::size_t j = 0; j < keys.count; ++j) {
      sum = hn::MulAdd(hn::Set(d, scores[j]), hn::LoadU(d, values.first + j * values.stride + c), sum);
    }
    hn::StoreU(hn::Div(sum, total), d, out + c);
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {
namespace {

HWY_EXPORT(RoundValues);
HWY_EXPORT(RmsNormRow);
HWY_EXPORT(RotateHead);
HWY_EXPORT(SiluMultiplyRow);
HWY_EXPORT(AttendHead);

}  // namespace

void Activations::Reset(std::size_t rows, std::size_t cols) {
  rows_ = rows;
  cols_ = cols;
  stride_ = Padded(cols);
  values_.assign(rows_ * stride_, 0.0F);
}

void RoundTo(DType dtype, std::span<float> values) {
  if (dtype != DType::kF32) HWY_DYNAMIC_DISPATCH(RoundValues)(dtype, values);
}

void RmsNorm(std::span<const float> x, std::span<const float> weight, float epsilon, DType dtype, std::span<float> y) {
  LAYERCAST_CHECK(weight.size() == x.size() && y.size() == x.size());
  HWY_DYNAMIC_DISPATCH(RmsNormRow)(x, weight, epsilon, dtype, y);
}

void Rotate(std::span<float> head, std::span<const float> cos, std::span<const float> sin, DType dtype) {
  const std::size_t half = head.size() / 2;
  LAYERCAST_CHECK(cos.size() == half && sin.size() == half);
  HWY_DYNAMIC_DISPATCH(RotateHead)(head, cos, sin, dtype);
}

void SiluMultiply(std::span<float> gate, std::span<const float> up, DType dtype) {
  LAYERCAST_CHECK(gate.size() == up.size());
  HWY_DYNAMIC_DISPATCH(SiluMultiplyRow)(gate, up, dtype);
}

void Attend(const float* query, const HeadRows& keys, const HeadRows& values, float scale, std::size_t padded,
            std::vector<float>& scores, float* out) {
  LAYERCAST_CHECK(keys.count > 0 && values.count == keys.count && padded % Activations::kPad == 0);
  scores.resize(std::max(scores.size(), Padded(keys.count)));
  HWY_DYNAMIC_DISPATCH(AttendHead)(query, keys, values, scale, padded, scores.data(), out);
}

}  // namespace layercast
#endif  // HWY_ONCE
