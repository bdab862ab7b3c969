#include "engine_side/model/box_runs.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/tensor/cast.h"

namespace layercast {
namespace {

// Bytes of `elements`, which fill whole bytes: packed 4-bit types are only placed whole.
std::int64_t Bytes(DType dtype, std::int64_t elements) { return elements * BitsPerElement(dtype) / 8; }

void CopyElements(DType from, const std::byte* source, DType to, std::byte* destination, std::int64_t count) {
  if (from == to) {
    std::memcpy(destination, source, static_cast<std::size_t>(Bytes(from, count)));
  } else {
    Cast(from, source, to, destination, static_cast<std::size_t>(count));
  }
}

void CheckBox(const Shape& shape, const Box& box) {
  bool inside = box.rank == shape.size();
  for (std::size_t axis = 0; inside && axis < box.rank; ++axis) {
    inside = box.begin[axis] >= 0 && box.extent[axis] >= 0 && box.begin[axis] <= shape[axis] &&
             box.extent[axis] <= shape[axis] - box.begin[axis];
  }
  if (!inside) throw Error(ErrorCode::kInvalidArgument, "a box leaves its tensor " + ToString(shape));
}

}  // namespace

BoxRuns::BoxRuns(const Shape& shape, const Box& box) {
  CheckBox(shape, box);
  if (box.num_elements() == 0) {
    num_runs_ = 0;
    return;
  }
  std::int64_t stride = 1;
  bool uniform = true;  // the runs so far are equally far apart, and so are those of the next dimension
  bool whole = true;    // all dimensions behind this one are taken whole
  for (std::size_t axis = box.rank; axis-- > 0;) {
    first_ += box.begin[axis] * stride;
    if (whole) {
      run_length_ *= box.extent[axis];
      whole = box.extent[axis] == shape[axis];
    } else {
      outer_ = std::max(outer_, axis + 1);
      num_runs_ *= box.extent[axis];
      if (uniform) runs_per_block_ *= box.extent[axis];
      uniform = uniform && box.extent[axis] == shape[axis];
    }
    extent_[axis] = box.extent[axis];
    stride_[axis] = stride;
    stride *= shape[axis];
  }
}

Run BoxRuns::At(std::int64_t index) const {
  Run run{first_, run_length_};
  for (std::size_t axis = outer_; axis-- > 0;) {
    run.offset += index % extent_[axis] * stride_[axis];
    index /= extent_[axis];
  }
  return run;
}

std::optional<Run> BoxRuns::Next() {
  if (next_ == num_runs_) return std::nullopt;
  return At(next_++);
}

TransposedBox::TransposedBox(const Shape& shape, const Box& box) {
  CheckBox(shape, box);
  LAYERCAST_CHECK(box.rank == 2 || box.rank == 3);
  const std::size_t axis = box.rank - 2U;
  stride_ = shape[axis + 1];
  matrix_ = shape[axis] * stride_;
  rows_ = box.extent[axis + 1];
  cols_ = box.extent[axis];
  first_ = (axis == 0 ? 0 : box.begin[0] * matrix_) + box.begin[axis] * stride_ + box.begin[axis + 1];
}

std::int64_t TransposedBox::OffsetOf(std::int64_t index) const {
  const std::int64_t row = index / cols_;
  return first_ + row / rows_ * matrix_ + index % cols_ * stride_ + row % rows_;
}

void Scatter(DType from, const std::byte* values, std::int64_t count, DType to, std::byte* destination,
             std::int64_t stride) {
  const auto size = static_cast<std::size_t>(Bytes(to, 1));
  std::vector<std::byte> cast(size * static_cast<std::size_t>(count));
  CopyElements(from, values, to, cast.data(), count);
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(destination + Bytes(to, i * stride), cast.data() + Bytes(to, i), size);
  }
}

namespace {

void CopyTransposed(const TensorView& source, const Box& source_box, const TensorSpec& spec, const Box& box,
                    std::byte* destination) {
  const TransposedBox places(spec.shape, box);
  BoxRuns runs(source.shape, source_box);
  std::int64_t element = 0;
  while (std::optional<Run> run = runs.Next()) {
    while (run->count != 0) {
      const std::int64_t count = std::min(run->count, places.row_length() - element % places.row_length());
      Scatter(source.dtype, source.data + Bytes(source.dtype, run->offset), count, spec.dtype,
              destination + Bytes(spec.dtype, places.OffsetOf(element)), places.stride());
      element += count;
      *run = {run->offset + count, run->count - count};
    }
  }
}

}  // namespace

void CopyBox(const TensorView& source, const Box& source_box, const TensorSpec& spec, const Box& box,
             std::byte* destination, bool transposed) {
  LAYERCAST_CHECK(source_box.num_elements() == box.num_elements());
  if (transposed) return CopyTransposed(source, source_box, spec, box, destination);
  BoxRuns from(source.shape, source_box);
  BoxRuns to(spec.shape, box);
  Run read;
  Run write;
  while (true) {
    if (read.count == 0) {
      const std::optional<Run> next = from.Next();
      if (!next) return;
      read = *next;
    }
    if (write.count == 0) write = to.Next().value();
    const std::int64_t count = std::min(read.count, write.count);
    CopyElements(source.dtype, source.data + Bytes(source.dtype, read.offset), spec.dtype,
                 destination + Bytes(spec.dtype, write.offset), count);
    read = {read.offset + count, read.count - count};
    write = {write.offset + count, write.count - count};
  }
}

void ZeroBox(const TensorSpec& spec, const Box& box, std::byte* destination) {
  BoxRuns runs(spec.shape, box);
  while (const std::optional<Run> run = runs.Next()) {
    std::memset(destination + Bytes(spec.dtype, run->offset), 0,
                static_cast<std::size_t>(Bytes(spec.dtype, run->count)));
  }
}

}  // namespace layercast
