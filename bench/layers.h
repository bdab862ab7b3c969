// Layers of weights that benchmarks of kernels walk through, and the memory for what they become.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "bench/samples.h"
#include "src/tensor/scan.h"

namespace layercast::bench {

struct Unmap {
  std::size_t bytes;
  void operator()(std::byte* memory) const { munmap(memory, bytes); }
};
using Memory = std::unique_ptr<std::byte, Unmap>;

// In 2 MiB pages where the system has them.
inline Memory Allocate(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  madvise(memory, size, MADV_HUGEPAGE);
  return Memory(static_cast<std::byte*>(memory), Unmap{size});
}

// `count` layers of `rows` x 4096 normal bf16 weights. A resource; filled once, read by the threads of a pool.
class Layers {
 public:
  static constexpr std::int64_t kCols = 4096;

  // Values begin `values_offset` bytes behind a page: kernels stream to whole cache lines alone.
  Layers(std::int64_t rows, std::int64_t count, std::int64_t values_offset)
      : rows_(rows), count_(count), values_offset_(values_offset), row_amax_(static_cast<std::size_t>(rows)) {
    const std::vector<std::uint16_t> some = NormalBf16(std::size_t{1} << 20);
    auto* to = reinterpret_cast<std::uint16_t*>(source_.get());
    const std::int64_t elements = count * rows * kCols;
    for (std::int64_t i = 0, n = 0; i < elements; i += n) {
      n = std::min(static_cast<std::int64_t>(some.size()), elements - i);
      std::copy_n(some.begin(), n, to + i);
    }
    std::fill_n(values_.get(), count * layer_bytes() + values_offset, std::byte{1});
    WorkerPool pool(1);
    amax_ = Scan(layer(0), pool).amax;
    std::fill(row_amax_.begin(), row_amax_.end(), amax_);
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t count() const { return count_; }
  std::int64_t layer_bytes() const { return rows_ * kCols * 2; }
  float amax() const { return amax_; }
  const std::vector<float>& row_amax() const { return row_amax_; }

  MatrixView layer(std::int64_t index) const {
    return {DType::kBF16, source_.get() + index * layer_bytes(), rows_, kCols, kCols * 2};
  }
  // Of a layer whose values take `bytes`, at most as many as its weights.
  std::byte* values(std::int64_t index, std::int64_t bytes) const {
    return values_.get() + values_offset_ + index * bytes;
  }
  // Of any one layer, under any recipe.
  std::byte* scales() const { return scales_.get(); }

 private:
  std::int64_t rows_;
  std::int64_t count_;
  std::int64_t values_offset_;
  Memory source_ = Allocate(count_ * layer_bytes());
  Memory values_ = Allocate(count_ * layer_bytes() + values_offset_);
  Memory scales_ = Allocate(layer_bytes() / 16);
  std::vector<float> row_amax_;
  float amax_ = 0.0F;
};

}  // namespace layercast::bench
