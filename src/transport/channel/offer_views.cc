#include "src/transport/channel/offer_views.h"

#include <string>

#include "layercast/error.h"

namespace layercast {

std::vector<RegionView> ViewsOf(std::span<const OfferedTensor> tensors, std::span<const Region> regions) {
  std::vector<RegionView> views;
  views.reserve(regions.size());
  for (const Region& region : regions) {
    if (region.tensor >= tensors.size()) {
      throw Error(ErrorCode::kInvalidArgument, "region of tensor " + std::to_string(region.tensor) +
                                                   ": expected a number below " + std::to_string(tensors.size()));
    }
    const OfferedTensor& tensor = tensors[region.tensor];
    if (tensor.written != nullptr && !tensor.written->load(std::memory_order_acquire)) {
      throw Error(ErrorCode::kInvalidArgument, "tensor " + std::to_string(region.tensor) + " is not there yet");
    }
    views.push_back(ViewAt(tensor.data, tensor.bytes, region));
  }
  return views;
}

std::vector<RegionView> PackedViews(std::span<const Region> regions, std::span<std::byte> destination) {
  std::vector<RegionView> views;
  views.reserve(regions.size());
  std::size_t offset = 0;
  for (const Region& region : regions) {
    std::uint64_t bytes = 0;
    if (__builtin_mul_overflow(region.rows, region.row_bytes, &bytes) || bytes > destination.size() - offset) {
      throw Error(ErrorCode::kInvalidArgument,
                  "the regions need more than the " + std::to_string(destination.size()) + " bytes of the destination");
    }
    views.push_back({destination.data() + offset, region.row_bytes, region.rows, region.row_bytes});
    offset += bytes;
  }
  return views;
}

}  // namespace layercast
