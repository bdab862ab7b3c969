#include "src/tensor/kernels/scan_kernels.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "src/tensor/kernels/page_prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/tensor/kernels/scan_kernels.cc"
#include "hwy/foreach_target.h"  // includes this file once per target
// After foreach_target.h:
#include "hwy/highway.h"
#include "src/tensor/kernels/load-inl.h"

HWY_BEFORE_NAMESPACE();
namespace layercast {
namespace HWY_NAMESPACE {
namespace {

// Elements per step: one prefetch step of 128 bytes; a multiple of 4 vectors of any target or a divisor of them.
template <class T>
constexpr std::size_t kStep = kPrefetchStep / sizeof(T);

// The largest `bits & ~sign` of `count` elements. Rows may begin at any byte.
template <class T>
T MaxBits(const std::byte* row, std::size_t count, PagePrefetcher& prefetcher) {
  const hn::CappedTag<T, kStep<T> / 2> d;
  const std::size_t lanes = hn::Lanes(d);
  constexpr T kNoSign = std::numeric_limits<T>::max() / 2;
  const auto no_sign = hn::Set(d, kNoSign);
  auto max0 = hn::Zero(d);
  auto max1 = max0;
  std::size_t i = 0;
  for (; i + kStep<T> <= count; i += kStep<T>) {
    prefetcher.Next();
    for (std::size_t j = i; j < i + kStep<T>; j += 2 * lanes) {
      max0 = hn::Max(max0, hn::And(LoadAny(d, row + j * sizeof(T)), no_sign));
      max1 = hn::Max(max1, hn::And(LoadAny(d, row + (j + lanes) * sizeof(T)), no_sign));
    }
  }
  HWY_ALIGN T found[kStep<T>] = {};
  hn::Store(hn::Max(max0, max1), d, found);
  HWY_ALIGN T rest[kStep<T>] = {};
  std::memcpy(rest, row + i * sizeof(T), (count - i) * sizeof(T));
  T max = 0;
  for (std::size_t j = 0; j < kStep<T>; ++j) {
    max = std::max({max, found[j], static_cast<T>(rest[j] & kNoSign)});
  }
  return max;
}

template <class T>
void RowMaxBits(const MatrixView& matrix, std::span<std::uint32_t> max_bits) {
  const auto rows = static_cast<std::size_t>(matrix.rows);
  const auto cols = static_cast<std::size_t>(matrix.cols);
  if (cols == 0) {  // the rows may have no memory at all
    std::ranges::fill(max_bits.first(rows), 0U);
    return;
  }
  PagePrefetcher prefetcher(
      MatrixPages(matrix.data, rows, cols * sizeof(T), static_cast<std::size_t>(matrix.row_stride)));
  for (std::size_t r = 0; r < rows; ++r) {
    max_bits[r] = MaxBits<T>(matrix.row(static_cast<std::int64_t>(r)), cols, prefetcher);
  }
}

}  // namespace

void RowMaxBits8(const MatrixView& matrix, std::span<std::uint32_t> max_bits) {
  RowMaxBits<std::uint8_t>(matrix, max_bits);
}
void RowMaxBits16(const MatrixView& matrix, std::span<std::uint32_t> max_bits) {
  RowMaxBits<std::uint16_t>(matrix, max_bits);
}
void RowMaxBits32(const MatrixView& matrix, std::span<std::uint32_t> max_bits) {
  RowMaxBits<std::uint32_t>(matrix, max_bits);
}

}  // namespace HWY_NAMESPACE
}  // namespace layercast
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace layercast {

HWY_EXPORT(RowMaxBits8);
HWY_EXPORT(RowMaxBits16);
HWY_EXPORT(RowMaxBits32);

void RowMaxBits8(const MatrixView& matrix, std::span<std::uint32_t> max_bits) {
  HWY_DYNAMIC_DISPATCH(RowMaxBits8)(matrix, max_bits);
}
void RowMaxBits16(const MatrixView& matrix, std::span<std::uint32_t> max_bits) {
  HWY_DYNAMIC_DISPATCH(RowMaxBits16)(matrix, max_bits);
}
void RowMaxBits32(const MatrixView& matrix, std::span<std::uint32_t> max_bits) {
  HWY_DYNAMIC_DISPATCH(RowMaxBits32)(matrix, max_bits);
}

}  // namespace layercast
#endif
