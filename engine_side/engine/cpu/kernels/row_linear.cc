// A panel of weight rows is converted to fp32 once per call, whatever the number of tokens, and then multiplied in
// tiles of 4 rows by up to 4 tokens. Each output element is one vector accumulator over all columns, whose lanes are
// summed at the end: the same in every tile shape.
#include "engine_side/engine/cpu/kernels/row_linear.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "engine_side/engine/cpu/kernels/row_kernels.h"
#include "src/base/check.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine_side/engine/cpu/kernels/row_linear.cc"
#include "hwy/detect_targets.h"
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)  // no arrays of vectors there
#include "hwy/foreach_target.h"  // includes this file once per target
#include "hwy/highway.h"
// Included after highway.h, since this too is compiled for each target.
#include "engine_side/engine/cpu/kernels/vectors-inl.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

constexpr std::size_t kTile = 4;

#if HWY_TARGET == HWY_SCALAR
void SumLanes(FloatTag, const hn::Vec<FloatTag> (&sums)[kTile], float* totals) {
  for (std::size_t r = 0; r < kTile; ++r) totals[r] = hn::GetLane(sums[r]);
}
#else
// The sum of a vector's 128-bit blocks.
template <class D>
hn::Vec<hn::CappedTag<float, 4> > SumBlocks(D d, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return SumBlocks(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// Sums the lanes of four vectors at once: two steps of transposing and adding, then the blocks.
void SumLanes(FloatTag d, const hn::Vec<FloatTag> (&sums)[kTile], float* totals) {
  const hn::Repartition<std::uint64_t, FloatTag> pairs;
  const auto a = hn::Add(hn::InterleaveLower(d, sums[0], sums[1]), hn::InterleaveUpper(d, sums[0], sums[1]));
  const auto b = hn::Add(hn::InterleaveLower(d, sums[2], sums[3]), hn::InterleaveUpper(d, sums[2], sums[3]));
  const auto lower = hn::InterleaveLower(pairs, hn::BitCast(pairs, a), hn::BitCast(pairs, b));
  const auto upper = hn::InterleaveUpper(pairs, hn::BitCast(pairs, a), hn::BitCast(pairs, b));
  const auto blocks = hn::Add(hn::BitCast(d, lower), hn::BitCast(d, upper));
  hn::Store(SumBlocks(d, blocks), hn::CappedTag<float, 4>(), totals);
}
#endif

template <std::size_t kTokens>
void Tile(const float* x, std::size_t x_stride, const float* weight, std::size_t padded, float* y, std::size_t y_stride,
          std::size_t rows) {
  const FloatTag d;
  hn::Vec<FloatTag> sums[kTokens][kTile];
  for (auto& of_token : sums) {
    for (auto& sum : of_token) sum = hn::Zero(d);
  }
  for (std::size_t c = 0; c < padded; c += hn::Lanes(d)) {
    hn::Vec<FloatTag> w[kTile];
    for (std::size_t r = 0; r < kTile; ++r) w[r] = hn::LoadU(d, weight + r * padded + c);
    for (std::size_t t = 0; t < kTokens; ++t) {
      const auto v = hn::LoadU(d, x + t * x_stride + c);
      for (std::size_t r = 0; r < kTile; ++r) sums[t][r] = hn::MulAdd(v, w[r], sums[t][r]);
    }
  }
  HWY_ALIGN float totals[kTile];
  for (std::size_t t = 0; t < kTokens; ++t) {
    SumLanes(d, sums[t], totals);
    float* to = y + t * y_stride;
    if (rows == kTile) {
      std::copy_n(totals, kTile, to);  // the size is a constant, so this is no call
    } else {
      std::copy_n(totals, rows, to);
    }
  }
}

}  // namespace

// Computes `rows` columns of y, from first_row on, for all tokens. The panel is padded with zero rows to a multiple of
// kTile.
void MultiplyPanel(const Activations& x, const float* panel, std::size_t rows, std::size_t first_row, Activations& y) {
  const std::size_t padded = x.stride();
  for (std::size_t t = 0; t < x.rows(); t += kTile) {
    const std::size_t tokens = std::min(kTile, x.rows() - t);
    for (std::size_t r = 0; r < rows; r += kTile) {
      const float* weight = panel + r * padded;
      float* to = y.row(t) + first_row + r;
      const std::size_t count = std::min(kTile, rows - r);
      switch (tokens) {
        case 1: Tile<1>(x.row(t), padded, weight, padded, to, y.stride(), count); break;
        case 2: Tile<2>(x.row(t), padded, weight, padded, to, y.stride(), count); break;
        case 3: Tile<3>(x.row(t), padded, weight, padded, to, y.stride(), count); break;
        default: Tile<4>(x.row(t), padded, weight, padded, to, y.stride(), count); break;
      }
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {
namespace {

HWY_EXPORT(MultiplyPanel);

constexpr std::size_t kPanelRows = 32;  // in fp32, fits the second-level cache up to about 8000 columns

void AddBias(const LinearWeights& linear, Activations& y) {
  if (!linear.bias) return;
  const std::vector<float> bias = ReadVector(*linear.bias);
  for (std::size_t i = 0; i < y.rows(); ++i) {
    for (std::size_t c = 0; c < bias.size(); ++c) y.row(i)[c] += bias[c];
  }
}

}  // namespace

void Multiply(const Activations& x, const WeightView& weight, Activations& y) {
  LAYERCAST_CHECK(x.cols() == weight.cols && y.rows() == x.rows() && y.cols() == weight.rows);
  const std::size_t padded = x.stride();
  const auto panel = std::make_unique_for_overwrite<float[]>(std::min(kPanelRows, (weight.rows + 3) / 4 * 4) * padded);
  for (std::size_t first = 0; first < weight.rows; first += kPanelRows) {
    const std::size_t rows = std::min(kPanelRows, weight.rows - first);
    ReadPaddedRows(weight, first, rows, panel.get(), padded);
    std::fill(panel.get() + rows * padded, panel.get() + (rows + 3) / 4 * 4 * padded, 0.0F);
    HWY_DYNAMIC_DISPATCH(MultiplyPanel)(x, panel.get(), rows, first, y);
  }
}

void ColumnParallel(const Activations& x, const LinearWeights& linear, DType dtype, Activations& y) {
  y.Reset(x.rows(), linear.weight.rows);
  Multiply(x, linear.weight, y);
  AddBias(linear, y);
  RoundTo(dtype, y.values());
}

void RowParallel(const Activations& x, const LinearWeights& linear, DType dtype, Collective& collective,
                 Activations& y) {
  y.Reset(x.rows(), linear.weight.rows);
  Multiply(x, linear.weight, y);
  collective.AllReduceSum(y.values());  // in fp32, before anything is rounded
  AddBias(linear, y);                   // every rank has the whole bias: it is added once, after the sum
  RoundTo(dtype, y.values());
}

}  // namespace layercast
#endif  // HWY_ONCE
