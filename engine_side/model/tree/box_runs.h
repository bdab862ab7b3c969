// The contiguous runs of a box inside a row-major tensor, in row-major order: how bytes are moved between a checkpoint
// tensor, its packed pieces and a parameter.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "layercast/model/placement.h"
#include "layercast/tensor.h"

namespace layercast {

// A contiguous run of elements. Both numbers count elements; `offset` is from the first element of the tensor. Value.
struct Run {
  std::int64_t offset = 0;
  std::int64_t count = 0;
};

// Value; one thread only.
class BoxRuns {
 public:
  // Throws kInvalidArgument if the box is not inside `shape`.
  BoxRuns(const Shape& shape, const Box& box);

  // All runs have the same length (in elements). The length times the number of runs is the box's number of elements.
  std::int64_t run_length() const { return run_length_; }
  // The run at `index`, which is below the number of runs.
  Run At(std::int64_t index) const;
  // The runs come in blocks of runs_per_block(). Within a block, the runs begin `stride()` elements apart, so that one
  // strided copy can move the whole block.
  std::int64_t runs_per_block() const { return runs_per_block_; }
  std::int64_t stride() const { return outer_ == 0 ? run_length_ : stride_[outer_ - 1]; }
  // The next run; nullopt at the end.
  std::optional<Run> Next();

 private:
  std::size_t outer_ = 0;  // dimensions that are stepped through; the ones after them form one run
  std::array<std::int64_t, Box::kMaxRank> extent_{};
  std::array<std::int64_t, Box::kMaxRank> stride_{};
  std::int64_t first_ = 0;
  std::int64_t run_length_ = 1;
  std::int64_t num_runs_ = 1;
  std::int64_t runs_per_block_ = 1;
  std::int64_t next_ = 0;
};

// Where the elements of a source box go in a destination box of equally many elements, when they do not keep their
// order. Value.
class ReorderedBox {
 public:
  // `box` has two or three dimensions and lies in the destination, a row-major tensor of this shape.
  ReorderedBox(const Shape& shape, const Box& box, ElementOrder order);
  // Casts the `count` values from `from` to `to` and writes them to their places in the tensor at `destination`. The
  // values are the source box's elements, in row-major order, from its element number `first` on. Returns what Cast
  // returns (src/tensor/cast.h).
  bool Scatter(DType from, const std::byte* values, std::int64_t first, std::int64_t count, DType to,
               std::byte* destination) const;

 private:
  // One dimension of the source box.
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

// Copies the elements of `source_box` to `box`, which has as many elements and lies in the tensor `spec` at
// `destination`. Casts them, and arranges them as `order` says. Both tensors are in host memory.
void CopyBox(const TensorView& source, const Box& source_box, const TensorSpec& spec, const Box& box,
             std::byte* destination, ElementOrder order = {});
// Zeroes `box` in the tensor `spec` at `destination`, which is in host memory.
void ZeroBox(const TensorSpec& spec, const Box& box, std::byte* destination);

}  // namespace layercast
