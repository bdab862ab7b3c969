// Where regions lie: in the tensors of an offer, and in the memory that a receiver supplied for them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/tensor/region.h"
#include "src/transport/channel.h"

namespace layercast {

// One view per region, into the tensors. Throws kInvalidArgument, naming tensor and bounds, when a region names no
// tensor of the offer, one that is not written yet, or leaves it; may be called on what came over the wire.
std::vector<RegionView> ViewsOf(std::span<const OfferedTensor> tensors, std::span<const Region> regions);

// Where each region lies once the chunk is packed into `destination`. Throws kInvalidArgument when it is too small.
std::vector<RegionView> PackedViews(std::span<const Region> regions, std::span<std::byte> destination);

}  // namespace layercast
