// The CUDA kernel for the largest finite magnitude of each column of each of several matrices. A thread does some rows
// of one column, and neighbouring threads have neighbouring columns.
#pragma once

#include <cstdint>

#include "src/device/kernels/dispatch_dtype.cuh"
#include "src/tensor/conversions.h"

namespace layercast::cuda {

template <class From>
struct ColumnAmax {
  static constexpr std::int64_t kRows = 64;

  const typename From::Bits* from;
  std::int64_t rows, cols;  // of each matrix
  float* amax;              // [matrices, cols]
  CudaFaultWord* fault;

  LAYERCAST_HOST_DEVICE static std::int64_t Bands(std::int64_t rows) { return (rows + kRows - 1) / kRows; }

  LAYERCAST_HOST_DEVICE void operator()(std::int64_t i) const {
    const std::int64_t col = i % cols;
    const std::int64_t band = i / cols % Bands(rows);
    const std::int64_t matrix = i / cols / Bands(rows);
    const std::int64_t end = (band + 1) * kRows < rows ? (band + 1) * kRows : rows;
    std::uint32_t largest = 0;
    for (std::int64_t row = band * kRows; row < end; ++row) {
      const std::int64_t index = (matrix * rows + row) * cols + col;
      const std::uint32_t magnitude = BitsOfFloat(From::ToFloat(from[index])) & 0x7fffffffU;
      if (magnitude >= kInfinityBits) {
        MergeMin(fault, EncodeCudaFault({CudaFault::Kind::kNan, index}));
      } else if (largest < magnitude) {
        largest = magnitude;
      }
    }
    MergeMax(amax + matrix * cols + col, FloatOfBits(largest));
  }
};

template <class Runner>
void RunColumnAmax(const Runner& runner, const CudaMatrix& stack, std::int64_t matrices, float* amax,
                   CudaFaultWord* fault) {
  const auto run = [&](auto type) {
    using From = decltype(type);
    using Columns = ColumnAmax<From>;
    runner.Run(Columns{static_cast<const typename From::Bits*>(stack.data), stack.rows, stack.cols, amax, fault},
               matrices * Columns::Bands(stack.rows) * stack.cols);
  };
  if (stack.dtype == kDTypeBF16) return run(conversions::BF16{});
  if (stack.dtype == kDTypeF16) return run(conversions::F16{});
  if (stack.dtype == kDTypeF32) return run(conversions::F32{});
  throw Error(ErrorCode::kInternal, "no magnitudes of dtype " + std::to_string(static_cast<int>(stack.dtype)));
}

}  // namespace layercast::cuda
