// A placed piece of a tensor, cut at the border of a part that a publisher has. Used when plans are made.
#pragma once

#include <optional>

#include "layercast/model/placement.h"

namespace layercast {

// What of `piece` has its source in `part`, a box of the same tensor; nullopt: nothing. Throws kUnsupported where the
// elements of the part come to lie in no box of the destination: cut along an axis that is deinterleaved, or of a piece
// that changes its shape.
std::optional<PlacedPiece> CutPiece(const PlacedPiece& piece, const Box& part);

}  // namespace layercast
