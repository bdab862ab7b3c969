// Views whose bytes belong one after the other, as a chunk's do.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/tensor/region.h"

namespace layercast {

std::size_t NumBytes(std::span<const RegionView> views);
// Copies them, packed, to `destination` (NumBytes of them); views of the copies.
std::vector<RegionView> PackAll(std::span<const RegionView> views, std::byte* destination);

}  // namespace layercast
