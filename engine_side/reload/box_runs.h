// A box of a contiguous row-major tensor as equally long runs of contiguous bytes. Value.
#pragma once

#include <cstdint>

#include "layercast/model/placement.h"
#include "layercast/tensor.h"

namespace layercast {

class BoxRuns {
 public:
  BoxRuns(const Box& box, DType dtype, const Shape& shape);

  std::uint64_t count() const { return count_; }
  std::uint64_t run_bytes() const { return run_bytes_; }
  // Where run number `run`, in row-major order of the box, begins in the tensor. Bytes.
  std::uint64_t offset(std::uint64_t run) const;

 private:
  Box box_;
  std::uint8_t outer_ = 0;                             // dimensions that runs are counted over
  std::array<std::uint64_t, Box::kMaxRank> stride_{};  // bytes
  std::uint64_t first_ = 0;
  std::uint64_t count_ = 0;
  std::uint64_t run_bytes_ = 0;
};

}  // namespace layercast
