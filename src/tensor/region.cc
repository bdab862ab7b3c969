#include "src/tensor/region.h"

#include <cstring>
#include <string>

#include "layercast/error.h"

namespace layercast {

void CheckInside(const Region& region, std::uint64_t tensor_bytes) {
  const auto fail = [&](const char* what) {
    throw Error(ErrorCode::kInvalidArgument,
                "region of tensor " + std::to_string(region.tensor) + ": " + what + ": offset " +
                    std::to_string(region.offset) + ", " + std::to_string(region.rows) + " rows of " +
                    std::to_string(region.row_bytes) + " bytes, stride " + std::to_string(region.stride) +
                    ", expected inside " + std::to_string(tensor_bytes) + " bytes");
  };
  if (region.rows == 0 || region.row_bytes == 0) {
    if (region.offset > tensor_bytes) fail("starts past the end");
    return;
  }
  if (region.offset > tensor_bytes || region.row_bytes > tensor_bytes - region.offset) fail("leaves the tensor");
  if (region.rows == 1) return;
  if (region.stride < region.row_bytes) fail("rows overlap");
  const std::uint64_t room = tensor_bytes - region.offset - region.row_bytes;
  if (region.rows - 1 > room / region.stride) fail("leaves the tensor");
}

// An empty tensor may have no address, and nothing but 0 may be added to a null pointer.
RegionView ViewAt(const std::byte* base, std::uint64_t bytes, const Region& region) {
  CheckInside(region, bytes);
  return {region.num_bytes() == 0 ? base : base + region.offset, region.row_bytes, region.rows, region.stride};
}

namespace {

// Packs rows of a single element each. With a size that is known only at run time, each would cost a call to memcpy.
template <std::size_t kSize>
void PackElements(const RegionView& view, std::byte* destination) {
  for (std::size_t row = 0; row < view.rows; ++row) std::memcpy(destination + row * kSize, view.row(row), kSize);
}

}  // namespace

void Pack(const RegionView& view, std::byte* destination) {
  if (view.stride == view.row_bytes || view.rows == 1) {
    if (view.num_bytes() != 0) std::memcpy(destination, view.base, view.num_bytes());
    return;
  }
  switch (view.row_bytes) {
    case 1: return PackElements<1>(view, destination);
    case 2: return PackElements<2>(view, destination);
    case 4: return PackElements<4>(view, destination);
    case 8: return PackElements<8>(view, destination);
    default: break;
  }
  for (std::size_t row = 0; row < view.rows; ++row) {
    std::memcpy(destination + row * view.row_bytes, view.row(row), view.row_bytes);
  }
}

}  // namespace layercast
