// The contiguous runs of a box inside a row-major tensor, in row-major order: how bytes are moved between a checkpoint
// tensor, its packed pieces and a parameter.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "layercast/model/placement.h"
#include "layercast/tensor.h"

namespace layercast {

// In elements, from the tensor's first.
struct Run {
  std::int64_t offset = 0;
  std::int64_t count = 0;
};

// Value; one thread only.
class BoxRuns {
 public:
  // Throws kInvalidArgument if the box is not inside `shape`.
  BoxRuns(const Shape& shape, const Box& box);

  // Elements of every run, and how many there are; their product is the box's number of elements.
  std::int64_t run_length() const { return run_length_; }
  std::int64_t num_runs() const { return num_runs_; }
  // The run number `index`, below num_runs().
  Run At(std::int64_t index) const;
  // Within a block of this many runs they lie `stride()` elements apart; a block is where a single strided copy ends.
  std::int64_t runs_per_block() const { return runs_per_block_; }
  std::int64_t stride() const { return outer_ == 0 ? run_length_ : stride_[outer_ - 1]; }
  // The next run; nullopt at the end.
  std::optional<Run> Next();

 private:
  std::size_t outer_ = 0;  // dimensions that are stepped through; those behind are one run
  std::array<std::int64_t, Box::kMaxRank> extent_{};
  std::array<std::int64_t, Box::kMaxRank> stride_{};
  std::int64_t first_ = 0;
  std::int64_t run_length_ = 1;
  std::int64_t num_runs_ = 1;
  std::int64_t runs_per_block_ = 1;
  std::int64_t next_ = 0;
};

// Where the elements of a source box go in a box of as many, when not in their own order. Value.
class ReorderedBox {
 public:
  // `box`, of two or three dimensions, lies in a row-major tensor of this shape: the destination.
  ReorderedBox(const Shape& shape, const Box& box, ElementOrder order);
  // Writes `count` values, those of the source from its element number `first` (row-major) on, cast, to their places in
  // the tensor at `destination`.
  void Scatter(DType from, const std::byte* values, std::int64_t first, std::int64_t count, DType to,
               std::byte* destination) const;

 private:
  // A dimension of the source box.
  struct Axis {
    std::int64_t extent = 1;
    std::int64_t stride = 0;  // in the destination
    bool interleaved = false;

    std::int64_t OffsetOf(std::int64_t index) const {
      return (interleaved ? index % 2 * (extent / 2) + index / 2 : index) * stride;
    }
  };
  template <class Element>
  void ScatterRow(const std::byte* values, std::int64_t col, std::int64_t count, std::byte* row) const;
  template <class Element>
  void TransposeRows(const std::byte* values, std::int64_t count, std::byte* first_row) const;
  template <class Element>
  void ScatterElements(const std::byte* values, std::int64_t first, std::int64_t count, std::byte* destination) const;

  std::int64_t first_ = 0;
  Axis matrices_, rows_, cols_;
};

// Copies the elements of one box, in this order, to another of as many elements in the tensor `spec` at `destination`,
// casting them. Host memory.
void CopyBox(const TensorView& source, const Box& source_box, const TensorSpec& spec, const Box& box,
             std::byte* destination, ElementOrder order = {});
// Zeroes a box of the tensor `spec` at `destination`.
void ZeroBox(const TensorSpec& spec, const Box& box, std::byte* destination);

}  // namespace layercast
