// Which elements of a strided tensor are meant, and in which order: those of a box of a parameter, or of a captured
// buffer. The one form of every strided copy: the host's (src/tensor/strided_copy.h), a schedule's regions, and those
// of kernels, which take it as it is. Valid as C++17, for CUDA compilers.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "src/base/digest/host_device.h"

namespace layercast {

struct Box;           // layercast/box.h
struct ElementOrder;  // layercast/box.h

// The elements of a box of `extent` in row-major order. In each dimension they are `stride` elements apart, and the
// first is element `offset` of the tensor. Dimensions of one element are left out, and those that continue each other
// are joined. Plain value; all members count elements.
//
// Elements that lie one behind the other form a run, and runs that are equally far apart form a block. All runs of a
// walk have one length, and so have its blocks.
struct Walk {
  static constexpr int kMaxRank = 5;

  int rank = 0;  // 0 means one element
  std::int64_t extent[kMaxRank] = {};
  std::int64_t stride[kMaxRank] = {};
  std::int64_t offset = 0;

  // Where the elements of a source box go, in the source's row-major order, if they go to `box` of a row-major tensor
  // of this shape, and are arranged there as `order` says. Without an order: the elements of the box. Throws
  // kInvalidArgument if the box leaves the tensor.
  static Walk Into(const std::vector<std::int64_t>& shape, const Box& box, ElementOrder order);
  static Walk Into(const std::vector<std::int64_t>& shape, const Box& box);
  // The elements of a tensor in row-major order, in dimension d `strides[d]` apart; without strides, one behind the
  // other. Empty if the strides are too irregular for a walk.
  static std::optional<Walk> Over(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& strides);

  std::int64_t num_elements() const {
    std::int64_t elements = 1;
    for (int d = 0; d < rank; ++d) elements *= extent[d];
    return elements;
  }

  // The element of the tensor that is number `index` of the walk, which must exist. Divides by all extents but the
  // first. It does so in 32 bits if these and the index fit, because a device takes several times as long in 64.
  LAYERCAST_HOST_DEVICE std::int64_t At(std::int64_t index) const {
    const std::int64_t bits = index | extent[1] | extent[2] | extent[3] | extent[4];
    return bits >> 32 == 0 ? AtBy<std::uint32_t>(index) : AtBy<std::uint64_t>(index);
  }

  std::int64_t run_length() const { return of_runs() == rank ? 1 : extent[rank - 1]; }
  std::int64_t block_length() const { return of_runs() == 0 ? run_length() : run_length() * extent[of_runs() - 1]; }
  // From run to run of a block.
  std::int64_t run_stride() const { return of_runs() == 0 ? run_length() : stride[of_runs() - 1]; }
  // Whether elements [first, first + count) lie one behind the other.
  bool IsOneRun(std::int64_t first, std::int64_t count) const {
    return count <= 1 || first % run_length() + count <= run_length();
  }
  bool IsOneRun() const { return IsOneRun(0, num_elements()); }

  // Rows whose elements lie one behind the other. Value.
  struct Rows {
    std::int64_t at = 0;  // the first row's place in the tensor
    std::int64_t rows = 0, cols = 0;
    std::int64_t stride = 0;  // from row to row

    bool operator==(const Rows& other) const {
      return at == other.at && rows == other.rows && cols == other.cols && stride == other.stride;
    }
  };
  // Elements [first, first + count) as rows. Empty if they are not rows of equal length that are equally far apart. A
  // single run is one row.
  std::optional<Rows> RowsOf(std::int64_t first, std::int64_t count) const;

  // Calls visit(offset, count) for each run of elements [first, first + count), in order: it is `count` elements, the
  // first of which is element `offset` of the tensor.
  template <class Visit>
  void ForEachRun(std::int64_t first, std::int64_t count, const Visit& visit) const {
    const std::int64_t length = run_length();
    if (count > 0 && first % length + count <= length) return visit(At(first), count);
    const std::int64_t block = block_length();
    while (count > 0) {
      std::int64_t before = first % length;  // elements of the run that come before `first`
      std::int64_t at = At(first);
      std::int64_t left = count < block - first % block ? count : block - first % block;
      first += left;
      count -= left;
      for (; left > 0; before = 0) {
        const std::int64_t of_run = left < length - before ? left : length - before;
        visit(at, of_run);
        at += run_stride() - before;
        left -= of_run;
      }
    }
  }
  template <class Visit>
  void ForEachRun(const Visit& visit) const {
    ForEachRun(0, num_elements(), visit);
  }

 private:
  // The dimensions that are stepped through. The one after them, if there is one, is a run.
  int of_runs() const { return rank > 0 && stride[rank - 1] == 1 ? rank - 1 : rank; }

  // Adds a dimension after the others, or joins it to the last of them. False if the walk has no room for it.
  bool Append(std::int64_t next_extent, std::int64_t next_stride);

  template <class Number>
  LAYERCAST_HOST_DEVICE std::int64_t AtBy(std::int64_t index) const {
    if (rank == 0) return offset;
    std::int64_t at = offset;
    auto left = static_cast<Number>(index);
    for (int d = rank; d-- > 1;) {
      const auto of_dimension = static_cast<Number>(extent[d]);
      const Number before = left / of_dimension;
      at += static_cast<std::int64_t>(left - before * of_dimension) * stride[d];
      left = before;
    }
    return at + static_cast<std::int64_t>(left) * stride[0];
  }
};

}  // namespace layercast
