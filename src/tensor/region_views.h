// Lists of views whose bytes belong together, one after the other, as a chunk's do.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/tensor/region.h"

namespace layercast {

std::size_t NumBytes(std::span<const RegionView> views);
// Copies all views' bytes, packed, to `destination`, which has room for NumBytes. Returns views of the copies.
std::vector<RegionView> PackAll(std::span<const RegionView> views, std::byte* destination);

}  // namespace layercast
