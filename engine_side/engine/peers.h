// Whom one rank's forward pass works with. Torch-free.
#pragma once

#include "engine_side/engine/collective.h"
#include "engine_side/engine/stage_link.h"

namespace layercast {

// Value. Both outlive who computes with them.
struct Peers {
  Collective& collective;           // those that share this rank's layers
  StageLink* stage_link = nullptr;  // its neighbours in a pipeline; null where one stage is all
};

}  // namespace layercast
