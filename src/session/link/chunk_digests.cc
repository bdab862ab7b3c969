#include "src/session/link/chunk_digests.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "layercast/error.h"
#include "src/base/digest/digest.h"
#include "src/transport/channel/offer_views.h"

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

void CheckChunkDigest(const Digest& expected, const Digest& got, const std::function<std::string()>& name) {
  if (expected == got) return;
  throw Error(ErrorCode::kCorrupt, name() + ": digest expected " + expected.ToHex() + ", got " + got.ToHex());
}

}  // namespace layercast
