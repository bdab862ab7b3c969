#include "engine_side/engine/cpu/kernels/row_kernels.h"

#include <algorithm>
#include <cmath>

#include "src/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/engine/cpu/kernels/row_kernels.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
#include "hwy/highway.h"
// Included after highway.h, since these headers too are compiled for each target.
#include "engine_side/engine/cpu/kernels/vectors-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

FloatVec Silu(FloatTag d, FloatVec v) {
  const auto largest = hn::Set(d, 88.0F);  // exp(88) is still finite; silu is -0 long before
  return hn::Div(v, hn::Add(hn::Set(d, 1.0F), hn::Exp(d, hn::Min(hn::Neg(v), largest))));
}

// x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3)))
FloatVec GeluTanh(FloatTag d, FloatVec v) {
  const auto cube = hn::Mul(hn::Mul(v, v), v);
  const auto inner = hn::Mul(hn::Set(d, 0.7978845608028654F), hn::MulAdd(hn::Set(d, 0.044715F), cube, v));
  return hn::Mul(hn::Mul(hn::Set(d, 0.5F), v), hn::Add(hn::Set(d, 1.0F), hn::Tanh(d, inner)));
}

// x / 2 * (1 + erf(x / sqrt(2))), lane by lane: Highway has no erf.
FloatVec Gelu(FloatTag d, FloatVec v) {
  HWY_ALIGN float lanes[kChunk];
  hn::Store(v, d, lanes);
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
    lanes[i] = lanes[i] * 0.5F * (1.0F + std::erf(lanes[i] * 0.7071067811865476F));
  }
  return hn::Load(d, lanes);
}

FloatVec ReluSquared(FloatTag d, FloatVec v) {
  const auto positive = hn::Max(v, hn::Zero(d));
  return hn::Mul(positive, positive);
}

FloatVec Apply(Activation activation, FloatTag d, FloatVec v) {
  switch (activation) {
    case Activation::kSilu: return Silu(d, v);
    case Activation::kGelu: return Gelu(d, v);
    case Activation::kReluSquared: return ReluSquared(d, v);
    case Activation::kGeluTanh: break;
  }
  return GeluTanh(d, v);
}

}  // namespace

void RoundValues(DType dtype, std::span<float> values) {
  const FloatTag d;
  Transform(values, [&](std::size_t, FloatVec v) { return Round(dtype, d, v); });
}

float SumOfSquaresOf(std::span<const float> x) {
  const FloatTag d;
  auto squares = hn::Zero(d);
  for (std::size_t i = 0; i < x.size(); i += hn::Lanes(d)) {
    const auto v = LoadRest(d, x, i);
    squares = hn::MulAdd(v, v, squares);
  }
  return hn::GetLane(hn::SumOfLanes(d, squares));
}

void NormalizeRow(float mean_square, std::span<const float> x, std::span<const float> factors, float epsilon,
                  NormStyle style, DType dtype, std::span<float> y) {
  const FloatTag d;
  const auto scale = hn::Set(d, 1.0F / std::sqrt(mean_square + epsilon));
  const DType inner = style == NormStyle::kWeight ? dtype : DType::kF32;
  std::copy(x.begin(), x.end(), y.begin());
  Transform(y, [&](std::size_t i, FloatVec v) {
    return Round(dtype, d, hn::Mul(Round(inner, d, hn::Mul(v, scale)), LoadRest(d, factors, i)));
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

void ActivateRow(Activation activation, std::span<float> values, DType dtype) {
  const FloatTag d;
  Transform(values, [&](std::size_t, FloatVec v) { return Round(dtype, d, Apply(activation, d, v)); });
}

void GateMultiplyRow(Activation activation, std::span<float> gate, std::span<const float> up, DType dtype) {
  const FloatTag d;
  Transform(gate, [&](std::size_t i, FloatVec v) {
    return Round(dtype, d, hn::Mul(Round(dtype, d, Apply(activation, d, v)), LoadRest(d, up, i)));
  });
}

void ClampedGateRow(float alpha, float limit, std::span<float> gate, std::span<const float> up, DType dtype) {
  const FloatTag d;
  const auto one = hn::Set(d, 1.0F);
  const auto most = hn::Set(d, limit);
  const auto least = hn::Neg(most);
  const auto largest = hn::Set(d, 88.0F);  // exp(88) is still finite
  Transform(gate, [&](std::size_t i, FloatVec v) {
    const auto g = hn::IfThenElse(hn::Gt(v, most), most, v);
    auto u = LoadRest(d, up, i);
    u = hn::IfThenElse(hn::Gt(u, most), most, hn::IfThenElse(hn::Lt(u, least), least, u));
    const auto scaled = Round(dtype, d, hn::Mul(g, hn::Set(d, alpha)));
    const auto sigmoid = hn::Div(one, hn::Add(one, hn::Exp(d, hn::Min(hn::Neg(scaled), largest))));
    const auto gated = Round(dtype, d, hn::Mul(g, Round(dtype, d, sigmoid)));
    return Round(dtype, d, hn::Mul(Round(dtype, d, hn::Add(u, one)), gated));
  });
}

void AddScaledRow(float scale, std::span<const float> x, DType dtype, std::span<float> y) {
  const FloatTag d;
  const auto scales = hn::Set(d, scale);
  Transform(y,
            [&](std::size_t i, FloatVec v) { return Round(dtype, d, hn::Add(v, hn::Mul(LoadRest(d, x, i), scales))); });
}

void SoftCapRow(float cap, std::span<float> values) {
  const FloatTag d;
  const auto caps = hn::Set(d, cap);
  Transform(values, [&](std::size_t, FloatVec v) {
    return hn::IfThenElse(hn::IsNaN(v), v, hn::Mul(caps, hn::Tanh(d, hn::Div(v, caps))));
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {
namespace {

HWY_EXPORT(RoundValues);
HWY_EXPORT(SumOfSquaresOf);
HWY_EXPORT(NormalizeRow);
HWY_EXPORT(RotateHead);
HWY_EXPORT(ActivateRow);
HWY_EXPORT(GateMultiplyRow);
HWY_EXPORT(ClampedGateRow);
HWY_EXPORT(AddScaledRow);
HWY_EXPORT(SoftCapRow);

}  // namespace

void RoundTo(DType dtype, std::span<float> values) {
  if (dtype != DType::kF32) HWY_DYNAMIC_DISPATCH(RoundValues)(dtype, values);
}

void RmsNorm(std::span<const float> x, std::span<const float> factors, float epsilon, NormStyle style, DType dtype,
             std::span<float> y) {
  NormalizeBy(SumOfSquares(x) / static_cast<float>(x.size()), x, factors, epsilon, style, dtype, y);
}

float SumOfSquares(std::span<const float> x) { return HWY_DYNAMIC_DISPATCH(SumOfSquaresOf)(x); }

void NormalizeBy(float mean_square, std::span<const float> x, std::span<const float> factors, float epsilon,
                 NormStyle style, DType dtype, std::span<float> y) {
  LAYERCAST_CHECK(factors.size() == x.size() && y.size() == x.size());
  HWY_DYNAMIC_DISPATCH(NormalizeRow)(mean_square, x, factors, epsilon, style, dtype, y);
}

void Rotate(std::span<float> head, std::span<const float> cos, std::span<const float> sin, DType dtype) {
  const std::size_t half = head.size() / 2;
  LAYERCAST_CHECK(cos.size() == half && sin.size() == half);
  HWY_DYNAMIC_DISPATCH(RotateHead)(head, cos, sin, dtype);
}

void Activate(Activation activation, std::span<float> values, DType dtype) {
  HWY_DYNAMIC_DISPATCH(ActivateRow)(activation, values, dtype);
}

void GateMultiply(Activation activation, std::span<float> gate, std::span<const float> up, DType dtype) {
  LAYERCAST_CHECK(gate.size() == up.size());
  HWY_DYNAMIC_DISPATCH(GateMultiplyRow)(activation, gate, up, dtype);
}

void ClampedGateMultiply(float alpha, float limit, std::span<float> gate, std::span<const float> up, DType dtype) {
  LAYERCAST_CHECK(gate.size() == up.size());
  HWY_DYNAMIC_DISPATCH(ClampedGateRow)(alpha, limit, gate, up, dtype);
}

void AddScaled(float scale, std::span<const float> x, DType dtype, std::span<float> y) {
  LAYERCAST_CHECK(x.size() == y.size());
  HWY_DYNAMIC_DISPATCH(AddScaledRow)(scale, x, dtype, y);
}

void SoftCap(float cap, std::span<float> values) { HWY_DYNAMIC_DISPATCH(SoftCapRow)(cap, values); }

}  // namespace layercast
#endif  // HWY_ONCE
