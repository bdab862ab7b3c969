#include "src/tensor/strided_copy.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "src/base/check.h"
#include "src/tensor/cast.h"

namespace layercast {
namespace {

// Returns what Cast returns.
bool CopyElements(DType from, const std::byte* source, DType to, std::byte* destination, std::int64_t count) {
  if (from != to) return Cast(from, source, to, destination, static_cast<std::size_t>(count));
  std::memcpy(destination, source, static_cast<std::size_t>(BytesOf(from, count)));
  return true;
}

template <class Element>
void ScatterSingly(const std::byte* values, std::byte* tensor, const Walk& walk, std::int64_t first,
                   std::int64_t count) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(Element));
  walk.ForEachRun(first, count, [&](std::int64_t offset, std::int64_t /*one*/) {
    std::memcpy(tensor + offset * kSize, values, sizeof(Element));
    values += kSize;
  });
}

// How a walk transposes: its rows of elements are columns of the tensor.
struct Transposition {
  std::int64_t rows = 0;  // 0: it does not
  Walk columns;           // where the elements of a row go, from its first one on

  static Transposition Of(const Walk& walk) {
    const auto* const one = std::find(walk.stride, walk.stride + walk.rank, 1);
    Transposition by;
    for (auto d = one - walk.stride + 1; d < walk.rank; ++d) {
      by.rows = walk.extent[one - walk.stride];
      by.columns.extent[by.columns.rank] = walk.extent[d];
      by.columns.stride[by.columns.rank++] = walk.stride[d];
    }
    return by;
  }
};

// Scatters whole rows of the source, each of which is a column of the tensor, in square tiles whose side is a cache
// line. A tile is read completely before it is written: the tensor's rows may lie so far apart that a cache holds few
// of them at once.
template <class Element>
void TransposeRows(const std::byte* values, std::int64_t count, const Walk& columns, std::byte* first_row) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(Element));
  constexpr std::int64_t kTile = 64 / kSize;
  std::vector<std::int64_t> offsets;
  columns.ForEachRun([&](std::int64_t offset, std::int64_t /*one*/) { offsets.push_back(offset); });
  const std::int64_t of_row = std::ssize(offsets);
  std::array<std::array<Element, kTile>, kTile> tile{};  // the last tiles of a row or column fill only a part
  std::array<Element, kTile> column;
  for (std::int64_t row = 0; row < count; row += kTile) {
    const std::int64_t rows = std::min(kTile, count - row);
    for (std::int64_t col = 0; col < of_row; col += kTile) {
      const std::int64_t cols = std::min(kTile, of_row - col);
      for (std::int64_t r = 0; r < rows; ++r) {
        std::memcpy(tile[static_cast<std::size_t>(r)].data(), values + ((row + r) * of_row + col) * kSize,
                    static_cast<std::size_t>(cols * kSize));
      }
      for (std::int64_t c = 0; c < cols; ++c) {
        for (std::size_t r = 0; r < kTile; ++r) column[r] = tile[r][static_cast<std::size_t>(c)];
        std::byte* const at = first_row + (offsets[static_cast<std::size_t>(col + c)] + row) * kSize;
        std::memcpy(at, column.data(), static_cast<std::size_t>(rows * kSize));
      }
    }
  }
}

template <class Element>
void ScatterElements(const std::byte* values, std::byte* tensor, const Walk& walk, std::int64_t first,
                     std::int64_t count) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(Element));
  const Transposition by = Transposition::Of(walk);
  if (by.rows == 0) return ScatterSingly<Element>(values, tensor, walk, first, count);
  const std::int64_t of_row = by.columns.num_elements();
  while (count > 0) {
    const std::int64_t col = first % of_row;
    const std::int64_t whole = std::min(count / of_row, by.rows - first / of_row % by.rows);
    std::int64_t done = std::min(count, of_row - col);
    if (col == 0 && whole > 0) {
      TransposeRows<Element>(values, whole, by.columns, tensor + walk.At(first) * kSize);
      done = whole * of_row;
    } else {
      ScatterSingly<Element>(values, tensor, walk, first, done);
    }
    values += done * kSize;
    first += done;
    count -= done;
  }
}

void ScatterElements(DType dtype, const std::byte* values, std::byte* tensor, const Walk& walk, std::int64_t first,
                     std::int64_t count) {
  switch (BitsPerElement(dtype)) {
    case 8: return ScatterElements<std::uint8_t>(values, tensor, walk, first, count);
    case 16: return ScatterElements<std::uint16_t>(values, tensor, walk, first, count);
    case 32: return ScatterElements<std::uint32_t>(values, tensor, walk, first, count);
    case 64: return ScatterElements<std::uint64_t>(values, tensor, walk, first, count);
    default: LAYERCAST_CHECK(false);  // elements that share bytes are never taken apart
  }
}

}  // namespace

bool Scatter(DType from, const std::byte* packed, DType to_dtype, std::byte* to, const Walk& walk, std::int64_t first,
             std::int64_t count) {
  if (walk.run_length() == 1 && count > 1) {
    if (from == to_dtype) return ScatterElements(from, packed, to, walk, first, count), true;
    std::vector<std::byte> cast(static_cast<std::size_t>(BytesOf(to_dtype, count)));
    const bool finite = CopyElements(from, packed, to_dtype, cast.data(), count);
    ScatterElements(to_dtype, cast.data(), to, walk, first, count);
    return finite;
  }
  bool finite = true;
  walk.ForEachRun(first, count, [&](std::int64_t offset, std::int64_t of_run) {
    finite &= CopyElements(from, packed, to_dtype, to + BytesOf(to_dtype, offset), of_run);
    packed += BytesOf(from, of_run);
  });
  return finite;
}

void CopyBox(const TensorView& source, const Box& source_box, const TensorSpec& spec, const Box& box,
             std::byte* destination, ElementOrder order) {
  LAYERCAST_CHECK(source_box.num_elements() == box.num_elements());
  const Walk to = Walk::Into(spec.shape, box, order);
  std::int64_t first = 0;
  Walk::Into(source.shape, source_box).ForEachRun([&](std::int64_t offset, std::int64_t count) {
    Scatter(source.dtype, source.data + BytesOf(source.dtype, offset), spec.dtype, destination, to, first, count);
    first += count;
  });
}

void ZeroBox(const TensorSpec& spec, const Box& box, std::byte* destination) {
  Walk::Into(spec.shape, box).ForEachRun([&](std::int64_t offset, std::int64_t count) {
    std::memset(destination + BytesOf(spec.dtype, offset), 0, static_cast<std::size_t>(BytesOf(spec.dtype, count)));
  });
}

}  // namespace layercast
