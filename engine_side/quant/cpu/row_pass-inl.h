// The pass of recipes with one scale for each row. Included by their kernels once for each instruction set.
// `Encoder::ForAmax(amax)` makes the encoder of a row, whose scale() goes to the output.
#if defined(LAYERCAST_ROW_PASS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LAYERCAST_ROW_PASS_INL_H_
#undef LAYERCAST_ROW_PASS_INL_H_
#else
#define LAYERCAST_ROW_PASS_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>

#include "engine_side/quant/cpu/chunk_pass-inl.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {

// Encodes rows with scales made from each row's own amax: while one row is encoded, the next is scanned.
template <class Encoder>
bool EncodeRows(const MatrixView& source, std::span<float> scales, std::uint8_t* values) {
  using Type = typename Encoder::Type;
  const ChunkConstants<Encoder> constants;
  PagePrefetcher prefetcher(PagesOf(Type{}, source));
  const auto cols = static_cast<std::size_t>(source.cols);
  bool finite = true;
  Maxima<Type> next;
  Run<Do::kScan>(constants, {cols, source.row(0), nullptr, nullptr}, next, prefetcher, Encoder{});
  for (std::int64_t r = 0; r < source.rows; ++r) {
    const float amax = next.Amax();
    finite = finite && std::isfinite(amax);
    const Encoder encoder = Encoder::ForAmax(amax);
    scales[static_cast<std::size_t>(r)] = encoder.scale();
    std::uint8_t* row_values = values + r * source.cols;
    next = {};
    if (r + 1 < source.rows) {
      Run<Do::kBoth>(constants, {cols, source.row(r + 1), source.row(r), row_values}, next, prefetcher, encoder);
    } else {
      Run<Do::kEncode>(constants, {cols, nullptr, source.row(r), row_values}, next, prefetcher, encoder);
    }
  }
  return finite;
}

// Encodes rows with scales made from the amax that is given for each. Returns false if a row has a larger magnitude.
template <class Encoder>
bool EncodeRowsGiven(const MatrixView& source, std::span<const float> amax, std::span<float> scales,
                     std::uint8_t* values) {
  using Type = typename Encoder::Type;
  const ChunkConstants<Encoder> constants;
  PagePrefetcher prefetcher(PagesOf(Type{}, source));
  const auto cols = static_cast<std::size_t>(source.cols);
  bool within = true;
  for (std::int64_t r = 0; r < source.rows; ++r) {
    const auto row = static_cast<std::size_t>(r);
    const Encoder encoder = Encoder::ForAmax(amax[row]);
    scales[row] = encoder.scale();
    Maxima<Type> maxima;
    Run<Do::kBoth>(constants, {cols, source.row(r), source.row(r), values + r * source.cols}, maxima, prefetcher,
                   encoder);
    within = within && maxima.Amax() <= amax[row];
  }
  return within;
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
