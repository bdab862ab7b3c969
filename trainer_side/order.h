// The order in which a stream sends its tensors, if the source leaves the choice. Used by `layercast publish --order`.
#pragma once

#include <cstdint>

#include "layercast/publisher.h"

namespace layercast {

// The same weights, walked in an order shuffled by `seed`, as a trainer might that gathers in no useful order. For
// tests of buffering and of its warning.
Weights Shuffled(Weights weights, std::uint64_t seed);

}  // namespace layercast
