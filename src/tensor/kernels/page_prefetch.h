// Prefetches memory in the order that is fastest on the processor. A pass over a matrix reads row after row, and this
// prefetches the pages ahead of it: on Intel four at a time, a pair of cache lines from each in turn. There, one
// sequential stream gets about two thirds of the bandwidth of four interleaved ones; on AMD one stream gets more.
// Values; one thread only. Used by the scan kernels and the quantize kernels.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "src/base/rounding.h"

// A call in a kernel's loop would make it spill every vector register, because none is kept across calls.
#define LAYERCAST_INLINE [[gnu::always_inline]] inline

namespace layercast {

inline constexpr std::size_t kPageBytes = 4096;
inline constexpr std::size_t kPrefetchStep = 128;  // bytes that one Next() prefetches

// Where page `index` lies in a matrix whose rows are cut into pages of equal size.
class MatrixPages {
 public:
  MatrixPages(const void* base, std::size_t rows, std::size_t row_bytes, std::size_t stride)
      : base_(reinterpret_cast<std::uintptr_t>(base)), stride_(stride) {
    per_row_ = row_bytes <= kPageBytes ? 1 : CeilDivide(row_bytes, kPageBytes);
    page_bytes_ = RoundUp(row_bytes / per_row_, kPrefetchStep);
    count_ = rows * per_row_;
  }

  std::size_t count() const { return count_; }
  std::size_t page_bytes() const { return page_bytes_; }
  std::uintptr_t operator()(std::size_t index) const {
    return base_ + index / per_row_ * stride_ + index % per_row_ * page_bytes_;
  }

 private:
  std::uintptr_t base_;  // not a pointer, because addresses past the end are computed, though never read
  std::size_t stride_;
  std::size_t per_row_;
  std::size_t page_bytes_;
  std::size_t count_;
};

// How many pages are best prefetched at once on this processor: 4 on Intel, else 1. A power of two.
std::size_t PagesAtOnce();

// Prefetches a few pages, a pair of cache lines of each in turn.
class PageGroup {
 public:
  // `pages` gives the addresses of pages 0 ... PagesAtOnce() - 1. They need not be valid: prefetching never faults.
  template <class Pages>
  LAYERCAST_INLINE void Start(std::size_t page_bytes, const Pages& pages) {
    for (std::size_t i = 0; i < count_; ++i) page_[i] = pages(i);
    step_ = 0;
    end_ = count_ * page_bytes / kPrefetchStep;
  }
  std::size_t count() const { return count_; }
  bool done() const { return step_ == end_; }

  LAYERCAST_INLINE void Next() {
    if (done()) return;
    const std::uintptr_t address = page_[step_ & (count_ - 1)] + (step_ >> shift_) * kPrefetchStep;
    __builtin_prefetch(reinterpret_cast<const void*>(address));
    __builtin_prefetch(reinterpret_cast<const void*>(address + kPrefetchStep / 2));
    ++step_;
  }

 private:
  static constexpr std::size_t kMaxPages = 4;

  std::size_t count_ = PagesAtOnce();
  int shift_ = std::countr_zero(count_);
  std::size_t step_ = 0;
  std::size_t end_ = 0;
  std::uintptr_t page_[kMaxPages] = {};
};

// Prefetches a whole matrix, one group of pages ahead of a reader, which calls Next() for each kPrefetchStep bytes that
// it consumes.
class PagePrefetcher {
 public:
  explicit PagePrefetcher(const MatrixPages& pages) : pages_(pages) { StartGroup(); }

  LAYERCAST_INLINE void Next() {
    group_.Next();
    if (group_.done()) StartGroup();
  }

 private:
  LAYERCAST_INLINE void StartGroup() {
    next_page_ += group_.count();
    if (next_page_ >= pages_.count()) return;
    group_.Start(pages_.page_bytes(), [this](std::size_t i) { return pages_(next_page_ + i); });
  }

  MatrixPages pages_;
  std::size_t next_page_ = 0;
  PageGroup group_;
};

}  // namespace layercast
