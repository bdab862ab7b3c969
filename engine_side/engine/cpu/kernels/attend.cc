#include "engine_side/engine/cpu/kernels/attend.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine_side/engine/cpu/kernels/row_kernels.h"
#include "src/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/engine/cpu/kernels/attend.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
#include "hwy/highway.h"
// Included after highway.h, since these headers too are compiled for each target.
#include "engine_side/engine/cpu/kernels/vectors-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

float Dot(const float* a, const float* b, std::size_t padded) {
  const FloatTag d;
  auto sum = hn::Zero(d);
  for (std::size_t i = 0; i < padded; i += hn::Lanes(d)) {
    sum = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), sum);
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

}  // namespace

void ScoreKeys(const float* query, const HeadRows& keys, float scale, std::size_t padded, float* scores) {
  for (std::size_t j = 0; j < keys.count; ++j) {
    scores[j] = Dot(query, keys.first + j * keys.stride, padded) * scale;
  }
}

// Turns scores into weights in place and sums the values by them. `scores` has room for `padded_count` floats; those
// from values.count on belong to no key.
void WeightValues(float* scores, std::size_t padded_count, float sink, const HeadRows& values, std::size_t padded,
                  float* out) {
  const FloatTag d;
  const std::size_t lanes = hn::Lanes(d);
  float largest = sink;
  for (std::size_t j = 0; j < values.count; ++j) largest = std::max(largest, scores[j]);
  std::fill(scores + values.count, scores + padded_count, -std::numeric_limits<float>::infinity());
  auto sums = hn::Zero(d);
  for (std::size_t j = 0; j < padded_count; j += lanes) {
    const auto score = hn::LoadU(d, scores + j);
    // Highway's Exp turns NaN into 0, which would hide a poisoned key.
    const auto weight = hn::IfThenElse(hn::IsNaN(score), score, hn::Exp(d, hn::Sub(score, hn::Set(d, largest))));
    hn::StoreU(weight, d, scores + j);
    sums = hn::Add(sums, weight);
  }
  const auto total = hn::Set(d, hn::GetLane(hn::SumOfLanes(d, sums)) + std::exp(sink - largest));
  for (std::size_t c = 0; c < padded; c += lanes) {
    auto sum = hn::Zero(d);
    for (std::size_t j = 0; j < values.count; ++j) {
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

HWY_EXPORT(ScoreKeys);
HWY_EXPORT(WeightValues);

}  // namespace

void Attend(const float* query, const HeadRows& keys, const HeadRows& values, const AttendOptions& options,
            std::size_t padded, std::vector<float>& scores, float* out) {
  LAYERCAST_CHECK(keys.count > 0 && values.count == keys.count && padded % Activations::kPad == 0);
  const std::size_t padded_count = Activations::Padded(keys.count);
  scores.resize(std::max(scores.size(), padded_count));
  HWY_DYNAMIC_DISPATCH(ScoreKeys)(query, keys, options.scale, padded, scores.data());
  if (options.logit_softcap > 0.0F) SoftCap(options.logit_softcap, std::span(scores).first(keys.count));
  HWY_DYNAMIC_DISPATCH(WeightValues)(scores.data(), padded_count, options.sink, values, padded, out);
}

}  // namespace layercast
#endif  // HWY_ONCE
