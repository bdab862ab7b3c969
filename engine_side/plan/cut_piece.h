// Cuts a placed piece of a tensor at the borders of a part that one publisher holds. Used when plans are made.
#pragma once

#include <optional>

#include "layercast/model/placement.h"

namespace layercast {

// The portion of `piece` whose source lies in `part`, a box of the same tensor; nullopt if there is none. Throws
// kUnsupported if that portion is no box of the destination: if it is cut along an axis that is deinterleaved, or if
// the piece changes its shape.
std::optional<PlacedPiece> CutPiece(const PlacedPiece& piece, const Box& part);

}  // namespace layercast
