#include "engine_side/reload/work/fuse_and_shard.h"

#include <algorithm>
#include <vector>

#include "src/base/check.h"
#include "src/tensor/strided_copy.h"

namespace layercast {
namespace {

constexpr std::size_t kShortRow = 64;      // bytes: packing shorter rows is cheaper than a call for each
constexpr std::size_t kBlock = 256 << 10;  // bytes: a block stays in the second-level cache

}  // namespace

bool FuseAndShard(const Placement& placement, const Piece& piece, DType source, const RegionView& view,
                  const TensorSpec& parameter, std::byte* memory) {
  LAYERCAST_CHECK(view.num_bytes() == piece.end - piece.begin);
  if (view.num_bytes() == 0) return true;
  const auto bits = static_cast<std::uint64_t>(BitsPerElement(source));
  if (bits % 8 != 0) {
    // Plans place elements that share bytes only as whole tensors and in their own order.
    LAYERCAST_CHECK(source == parameter.dtype && placement.order.is_same());
    Pack(view, memory + piece.begin);
    return true;
  }
  const Walk walk = Walk::Into(parameter.shape, placement.destination, placement.order);
  std::uint64_t byte = piece.begin;  // of the placement
  const auto scatter = [&](const std::byte* from, std::size_t bytes) {
    const auto first = static_cast<std::int64_t>(byte * 8 / bits);
    byte += bytes;
    return Scatter(source, from, parameter.dtype, memory, walk, first, static_cast<std::int64_t>(bytes * 8 / bits));
  };
  if (view.rows == 1 || view.stride == view.row_bytes) return scatter(view.base, view.num_bytes());
  bool finite = true;
  if (placement.order.is_same() && view.row_bytes >= kShortRow) {
    for (std::size_t row = 0; row < view.rows; ++row) finite &= scatter(view.row(row), view.row_bytes);
    return finite;
  }
  const std::size_t at_once = std::clamp<std::size_t>(kBlock / view.row_bytes, 1, view.rows);
  std::vector<std::byte> packed(at_once * view.row_bytes);
  for (std::size_t row = 0; row < view.rows; row += at_once) {
    const RegionView rows{view.row(row), view.row_bytes, std::min(at_once, view.rows - row), view.stride};
    Pack(rows, packed.data());
    finite &= scatter(packed.data(), rows.num_bytes());
  }
  return finite;
}

}  // namespace layercast
