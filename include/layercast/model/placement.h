// Where one piece of one checkpoint tensor goes. Layers answer with it, and load plans hold it. Values.
#pragma once

#include <cstdint>
#include <string_view>

#include "layercast/box.h"

namespace layercast {

// An owner's answer to "where does this tensor go?" The source box of the checkpoint tensor lands in the destination
// box of the owner's parameter number `parameter`. Value.
struct PlacedPiece {
  std::uint32_t parameter = 0;
  Box source;
  Box destination;
  std::string_view shard_id;  // "q", "0", ... or empty; lives as long as the module
  ElementOrder order = {};
  bool shared = false;      // the parts of a fused layer bring a number each; the parameter gets the largest of them
  bool reciprocal = false;  // the source's elements are f32, and what lands is one divided by each of them
};

}  // namespace layercast
