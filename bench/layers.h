// Layers of weights that benchmarks of kernels walk through, and memory for the results.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "bench/samples.h"
#include "src/tensor/kernels/scan.h"

namespace layercast::bench {

struct Unmap {
  std::size_t bytes;
  void operator()(std::byte* memory) const { munmap(memory, bytes); }
};
using Memory = std::unique_ptr<std::byte, Unmap>;

// Allocates in 2 MiB pages if the system has them.
inline Memory Allocate(std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  madvise(memory, size, MADV_HUGEPAGE);
  return Memory(static_cast<std::byte*>(memory), Unmap{size});
}

struct LayersShape {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t count;
  std::int64_t values_offset = 0;  // values begin so far behind a page; kernels stream only to whole cache lines
  std::int64_t zeros_every = 0;    // the first 16 of so many elements are 0, as in pruned weights; 0: none are
};

// `count` layers of `rows` x `cols` normally distributed bf16 weights. Resource; filled once, then read by the threads
// of a pool.
class Layers {
 public:
  explicit Layers(const LayersShape& shape) : shape_(shape), row_amax_(static_cast<std::size_t>(shape.rows)) {
    const std::vector<std::uint16_t> some = NormalBf16(std::size_t{1} << 20);
    auto* to = reinterpret_cast<std::uint16_t*>(source_.get());
    const std::int64_t elements = shape.count * shape.rows * shape.cols;
    for (std::int64_t i = 0, n = 0; i < elements; i += n) {
      n = std::min(static_cast<std::int64_t>(some.size()), elements - i);
      std::copy_n(some.begin(), n, to + i);
    }
    for (std::int64_t i = 0; i < elements && shape.zeros_every != 0; i += shape.zeros_every) std::fill_n(to + i, 16, 0);
    std::fill_n(values_.get(), shape.count * layer_bytes() + shape.values_offset, std::byte{1});
    WorkerPool pool(1);
    amax_ = Scan(layer(0), pool).amax;
    std::fill(row_amax_.begin(), row_amax_.end(), amax_);
  }

  std::int64_t rows() const { return shape_.rows; }
  std::int64_t cols() const { return shape_.cols; }
  std::int64_t count() const { return shape_.count; }
  std::int64_t layer_bytes() const { return rows() * cols() * 2; }
  float amax() const { return amax_; }
  const std::vector<float>& row_amax() const { return row_amax_; }

  MatrixView layer(std::int64_t index) const {
    return {DType::kBF16, source_.get() + index * layer_bytes(), rows(), cols(), cols() * 2};
  }
  // Where a layer's values go. They take `bytes`, at most as many as its weights.
  std::byte* values(std::int64_t index, std::int64_t bytes) const {
    return values_.get() + shape_.values_offset + index * bytes;
  }
  // Memory for the scales of one layer at a time, under any recipe.
  std::byte* scales() const { return scales_.get(); }

 private:
  const LayersShape shape_;
  Memory source_ = Allocate(count() * layer_bytes());
  Memory values_ = Allocate(count() * layer_bytes() + shape_.values_offset);
  Memory scales_ = Allocate(layer_bytes() / 16);
  std::vector<float> row_amax_;
  float amax_ = 0.0F;
};

}  // namespace layercast::bench
