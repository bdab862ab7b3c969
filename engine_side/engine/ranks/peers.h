// The other ranks that one rank's forward pass works with. Torch-free.
#pragma once

#include "engine_side/engine/ranks/collective.h"
#include "engine_side/engine/ranks/stage_link.h"

namespace layercast {

// Value. Both objects must outlive the forward pass.
struct Peers {
  Collective& collective;           // connects the ranks that share this rank's layers
  StageLink* stage_link = nullptr;  // connects neighbours in a pipeline; null with a single stage
};

}  // namespace layercast
