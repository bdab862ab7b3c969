#include "engine_side/model/tree/box_runs.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/check.h"
#include "src/tensor/cast.h"

namespace layercast {
namespace {

// The bytes that `elements` take. They fill whole bytes, since elements of 4-bit types are only placed in full bytes.
std::int64_t Bytes(DType dtype, std::int64_t elements) { return elements * BitsPerElement(dtype) / 8; }

// Returns what Cast returns.
bool CopyElements(DType from, const std::byte* source, DType to, std::byte* destination, std::int64_t count) {
  if (from != to) return Cast(from, source, to, destination, static_cast<std::size_t>(count));
  std::memcpy(destination, source, static_cast<std::size_t>(Bytes(from, count)));
  return true;
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
  bool uniform = true;  // the runs are equally far apart, and stay so in the next dimension
  bool whole = true;    // the box spans all dimensions after this one
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

ReorderedBox::ReorderedBox(const Shape& shape, const Box& box, ElementOrder order) {
  CheckBox(shape, box);
  LAYERCAST_CHECK(box.rank == 2 || box.rank == 3);
  std::array<Axis, 3> axes;  // of the destination; a box of two dimensions is one matrix
  std::int64_t stride = 1;
  for (std::size_t d = box.rank, axis = axes.size(); d-- > 0;) {
    axes[--axis] = {box.extent[d], stride, order.interleaved && d == 1};
    LAYERCAST_CHECK(!axes[axis].interleaved || axes[axis].extent % 2 == 0);
    first_ += box.begin[d] * stride;
    stride *= shape[d];
  }
  if (order.transposed) std::swap(axes[1], axes[2]);
  matrices_ = axes[0];
  rows_ = axes[1];
  cols_ = axes[2];
}

template <class Element>
void ReorderedBox::ScatterRow(const std::byte* values, std::int64_t col, std::int64_t count, std::byte* row) const {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(Element));
  for (std::int64_t i = 0; i < count; ++i) {
    std::memcpy(row + cols_.OffsetOf(col + i) * kSize, values + i * kSize, sizeof(Element));
  }
}

// Scatters whole rows of the source, each of which is a column of the tensor, in square tiles whose side is a cache
// line. A tile is read completely before it is written: the tensor's rows may lie so far apart that a cache holds few
// of them at once.
template <class Element>
void ReorderedBox::TransposeRows(const std::byte* values, std::int64_t count, std::byte* first_row) const {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(Element));
  constexpr std::int64_t kTile = 64 / kSize;
  std::array<std::array<Element, kTile>, kTile> tile{};  // the last tiles of a row or column fill only a part
  std::array<Element, kTile> column;
  for (std::int64_t row = 0; row < count; row += kTile) {
    const std::int64_t rows = std::min(kTile, count - row);
    for (std::int64_t col = 0; col < cols_.extent; col += kTile) {
      const std::int64_t cols = std::min(kTile, cols_.extent - col);
      for (std::int64_t r = 0; r < rows; ++r) {
        std::memcpy(tile[static_cast<std::size_t>(r)].data(), values + ((row + r) * cols_.extent + col) * kSize,
                    static_cast<std::size_t>(cols * kSize));
      }
      for (std::int64_t c = 0; c < cols; ++c) {
        for (std::size_t r = 0; r < kTile; ++r) column[r] = tile[r][static_cast<std::size_t>(c)];
        std::memcpy(first_row + (cols_.OffsetOf(col + c) + row) * kSize, column.data(),
                    static_cast<std::size_t>(rows * kSize));
      }
    }
  }
}

template <class Element>
void ReorderedBox::ScatterElements(const std::byte* values, std::int64_t first, std::int64_t count,
                                   std::byte* destination) const {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(Element));
  const bool rows_are_columns = rows_.stride == 1 && !rows_.interleaved;
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t col = (first + done) % cols_.extent;
    const std::int64_t row = (first + done) / cols_.extent;
    const std::int64_t offset = first_ + matrices_.OffsetOf(row / rows_.extent) + rows_.OffsetOf(row % rows_.extent);
    const std::byte* part = values + done * kSize;
    std::byte* place = destination + offset * kSize;
    const std::int64_t whole = std::min((count - done) / cols_.extent, rows_.extent - row % rows_.extent);
    if (rows_are_columns && col == 0 && whole > 0) {
      TransposeRows<Element>(part, whole, place);
      done += whole * cols_.extent;
      continue;
    }
    const std::int64_t in_row = std::min(count - done, cols_.extent - col);
    ScatterRow<Element>(part, col, in_row, place);
    done += in_row;
  }
}

bool ReorderedBox::Scatter(DType from, const std::byte* values, std::int64_t first, std::int64_t count, DType to,
                           std::byte* destination) const {
  std::vector<std::byte> cast;
  bool finite = true;
  if (from != to) {
    cast.resize(static_cast<std::size_t>(Bytes(to, count)));
    finite = CopyElements(from, values, to, cast.data(), count);
    values = cast.data();
  }
  switch (BitsPerElement(to)) {
    case 8: ScatterElements<std::uint8_t>(values, first, count, destination); break;
    case 16: ScatterElements<std::uint16_t>(values, first, count, destination); break;
    case 32: ScatterElements<std::uint32_t>(values, first, count, destination); break;
    case 64: ScatterElements<std::uint64_t>(values, first, count, destination); break;
    default: LAYERCAST_CHECK(false);  // elements that share bytes are never reordered
  }
  return finite;
}

namespace {

void CopyReordered(const TensorView& source, const Box& source_box, const TensorSpec& spec, const Box& box,
                   std::byte* destination, ElementOrder order) {
  const ReorderedBox places(spec.shape, box, order);
  BoxRuns runs(source.shape, source_box);
  std::int64_t element = 0;
  while (const std::optional<Run> run = runs.Next()) {
    places.Scatter(source.dtype, source.data + Bytes(source.dtype, run->offset), element, run->count, spec.dtype,
                   destination);
    element += run->count;
  }
}

}  // namespace

void CopyBox(const TensorView& source, const Box& source_box, const TensorSpec& spec, const Box& box,
             std::byte* destination, ElementOrder order) {
  LAYERCAST_CHECK(source_box.num_elements() == box.num_elements());
  if (!order.is_same()) return CopyReordered(source, source_box, spec, box, destination, order);
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
