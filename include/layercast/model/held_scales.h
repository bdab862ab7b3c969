// Which scales an engine has beside those of its weights: what its kernels quantize activations and caches with. An
// engine that has none, as the built-in one, needs nothing of this. Used where a tree is built.
#pragma once

#include "layercast/export.h"
#include "layercast/model/module.h"

namespace layercast {

// Value.
struct HeldScales {
  bool inputs = false;    // "input_scale" of each layer that a recipe applies to: QuantizableLayer::HoldInputScales
  bool kv_cache = false;  // "attn.k_scale" and "attn.v_scale" of each attention layer: KvCacheScales

  bool operator==(const HeldScales&) const = default;
};

// Gives the layers below `root` the parameters that such an engine has, which are then captured buffers like any
// others. Before a Receiver takes the tree.
LAYERCAST_PUBLIC void HoldScales(Module& root, const HeldScales& scales);

}  // namespace layercast
