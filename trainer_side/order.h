// The order in which a stream sends its tensors, where the source leaves the choice.
#pragma once

#include <cstdint>

#include "layercast/publisher.h"

namespace layercast {

// The same weights, walked in an order shuffled by `seed`: what a trainer that gathers in no useful order would send.
// For tests of buffering and of its warning.
Weights Shuffled(Weights weights, std::uint64_t seed);

}  // namespace layercast
