#include "engine_side/reload/work/fuse_and_shard.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <vector>

#include "engine_side/model/tree/box_runs.h"
#include "src/base/check.h"
#include "src/tensor/cast.h"

namespace layercast {
namespace {

std::uint64_t ElementBytes(DType dtype) { return static_cast<std::uint64_t>(BitsPerElement(dtype)) / 8; }

constexpr std::size_t kShortRow = 64;      // bytes: packing shorter rows is cheaper than a call for each
constexpr std::size_t kBlock = 256 << 10;  // bytes: a block stays in the second-level cache

bool IsContiguous(const RegionView& view) { return view.rows == 1 || view.stride == view.row_bytes; }

// Packs some rows at a time, and fuses these as one run.
bool FuseInBlocks(const Placement& placement, const Piece& piece, DType source, const RegionView& view,
                  const TensorSpec& parameter, std::byte* memory) {
  const std::size_t at_once = std::clamp<std::size_t>(kBlock / view.row_bytes, 1, view.rows);
  std::vector<std::byte> packed(at_once * view.row_bytes);
  bool finite = true;
  for (std::size_t row = 0; row < view.rows; row += at_once) {
    const RegionView rows{view.row(row), view.row_bytes, std::min(at_once, view.rows - row), view.stride};
    Pack(rows, packed.data());
    const std::uint64_t begin = piece.begin + row * view.row_bytes;
    finite &= FuseAndShard(placement, {piece.placement, begin, begin + rows.num_bytes()}, source,
                           AsView(std::span(packed).first(rows.num_bytes())), parameter, memory);
  }
  return finite;
}

bool FuseReordered(const Placement& placement, const Piece& piece, DType source, const RegionView& view,
                   const TensorSpec& parameter, std::byte* memory) {
  const ReorderedBox places(parameter.shape, placement.destination, placement.order);
  return places.Scatter(source, view.base, static_cast<std::int64_t>(piece.begin / ElementBytes(source)),
                        static_cast<std::int64_t>(view.num_bytes() / ElementBytes(source)), parameter.dtype, memory);
}

}  // namespace

bool FuseAndShard(const Placement& placement, const Piece& piece, DType source, const RegionView& view,
                  const TensorSpec& parameter, std::byte* memory) {
  LAYERCAST_CHECK(view.num_bytes() == piece.end - piece.begin);
  if (view.num_bytes() == 0) return true;
  if (BitsPerElement(source) % 8 != 0) {
    // Plans place elements that share bytes only as whole tensors and in their own order.
    LAYERCAST_CHECK(source == parameter.dtype && placement.order.is_same());
    Pack(view, memory + piece.begin);
    return true;
  }
  const bool same_order = placement.order.is_same();
  if (!IsContiguous(view) && (!same_order || view.row_bytes < kShortRow)) {
    return FuseInBlocks(placement, piece, source, view, parameter, memory);
  }
  if (!same_order) return FuseReordered(placement, piece, source, view, parameter, memory);
  const BoxRuns destination(parameter.shape, placement.destination);
  const std::uint64_t source_size = ElementBytes(source);
  const std::uint64_t target_size = ElementBytes(parameter.dtype);
  const auto run_elements = static_cast<std::uint64_t>(destination.run_length());

  // Both sides are rows of contiguous elements, of different lengths: copy the overlap, step, repeat.
  std::uint64_t element = piece.begin / source_size;  // of the placement, in row-major order
  std::uint64_t row = 0;
  std::uint64_t row_byte = 0;
  bool finite = true;
  while (row < view.rows) {
    const Run run = destination.At(static_cast<std::int64_t>(element / run_elements));
    const std::uint64_t in_run = element % run_elements;
    const std::uint64_t count = std::min(run_elements - in_run, (view.row_bytes - row_byte) / source_size);
    std::byte* to = memory + (static_cast<std::uint64_t>(run.offset) + in_run) * target_size;
    const std::byte* from = view.row(row) + row_byte;
    if (source == parameter.dtype) {
      std::memcpy(to, from, count * target_size);
    } else {
      finite &= Cast(source, from, parameter.dtype, to, count);
    }
    element += count;
    row_byte += count * source_size;
    if (row_byte == view.row_bytes) {
      row_byte = 0;
      ++row;
    }
  }
  return finite;
}

}  // namespace layercast
