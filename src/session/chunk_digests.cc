#include "src/session/chunk_digests.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string>

#include "layercast/error.h"
#include "src/base/digest.h"
#include "src/transport/offer_views.h"

namespace layercast {
namespace {

// Digests rows that are shorter than what a digest takes at once, by packing some at a time.
void UpdateWithShortRows(Digester& digester, const RegionView& view) {
  std::array<std::byte, std::size_t{16} << 10> packed;
  const std::size_t at_once = packed.size() / view.row_bytes;
  for (std::size_t row = 0; row < view.rows; row += at_once) {
    const RegionView rows{view.row(row), view.row_bytes, std::min(at_once, view.rows - row), view.stride};
    Pack(rows, packed.data());
    digester.Update(std::span(packed).first(rows.num_bytes()));
  }
}

}  // namespace

RegionView ViewOf(const OfferedTensor& tensor, const Region& region) {
  CheckInside(region, tensor.bytes);
  return {.base = tensor.data + region.offset,
          .row_bytes = static_cast<std::size_t>(region.row_bytes),
          .rows = static_cast<std::size_t>(region.rows),
          .stride = static_cast<std::size_t>(region.rows > 1 ? region.stride : region.row_bytes)};
}

Digest ChunkDigest(std::span<const Region> regions, std::span<const OfferedTensor> tensors) {
  return DigestOfViews(ViewsOf(tensors, regions));
}

Digest DigestOfViews(std::span<const RegionView> views) {
  constexpr std::size_t kShortRow = 256;
  Digester digester;
  for (const RegionView& view : views) {
    if (view.stride == view.row_bytes || view.rows == 1) {
      digester.Update({view.base, view.num_bytes()});
      continue;
    }
    if (view.row_bytes != 0 && view.row_bytes < kShortRow) {
      UpdateWithShortRows(digester, view);
      continue;
    }
    for (std::size_t row = 0; row < view.rows; ++row) digester.Update({view.row(row), view.row_bytes});
  }
  return digester.Finish();
}

void CheckSchedule(const Schedule& schedule, const Manifest& manifest, bool stream) {
  for (const Chunk& chunk : schedule.chunks()) {
    const std::span<const Region> regions = schedule.RegionsOf(chunk);
    if (regions.empty()) throw Error(ErrorCode::kInvalidArgument, "the schedule has a chunk without regions");
    for (const Region& region : regions) {
      if (region.tensor >= manifest.size()) {
        throw Error(ErrorCode::kInvalidArgument, "the schedule asks for tensor " + std::to_string(region.tensor) +
                                                     ", expected one of " + std::to_string(manifest.size()));
      }
      CheckInside(region, static_cast<std::uint64_t>(manifest.entry(region.tensor).spec.num_bytes()));
      if (stream && region.tensor != regions.front().tensor) {
        throw Error(ErrorCode::kInvalidArgument, "the schedule has a chunk of tensors " +
                                                     std::to_string(regions.front().tensor) + " and " +
                                                     std::to_string(region.tensor) + ": a stream's have one");
      }
    }
  }
}

}  // namespace layercast
