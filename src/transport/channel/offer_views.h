// Where regions lie: in the tensors of an offer, and in the memory that a receiver supplied for them.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "src/tensor/region.h"
#include "src/transport/channel/channel.h"

namespace layercast {

// One view per region, into the tensors. Throws kInvalidArgument, naming tensor and bounds, if a region names a tensor
// that the offer does not have or that is not written yet, or reaches beyond its tensor. The regions need not be
// trusted: they may come straight from the wire.
std::vector<RegionView> ViewsOf(std::span<const OfferedTensor> tensors, std::span<const Region> regions);

// Where each region lies once the chunk is packed into `destination`. Throws kInvalidArgument when it is too small.
std::vector<RegionView> PackedViews(std::span<const Region> regions, std::span<std::byte> destination);

}  // namespace layercast
