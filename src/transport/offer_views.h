// What every transport does with an offer: look for regions in it. Used by the end that knows where the tensors lie.
#pragma once

#include <span>
#include <vector>

#include "src/tensor/region.h"
#include "src/transport/channel.h"

namespace layercast {

// One view per region, into the tensors. Throws kInvalidArgument, naming tensor and bounds, when a region names no
// tensor of the offer or leaves it; may be called on what came over the wire.
std::vector<RegionView> ViewsOf(std::span<const OfferedTensor> tensors, std::span<const Region> regions);

}  // namespace layercast
