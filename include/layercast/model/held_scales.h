// Which static scales an engine holds beside those of its weights: the ones that its kernels quantize activations and
// KV caches with. An engine whose kernels use none needs nothing of this. Used where a tree is built.
#pragma once

#include "layercast/export.h"

namespace layercast {

class Module;

// Value.
struct HeldScales {
  bool inputs = false;    // an "input_scale" for each layer that a recipe applies to: QuantizableLayer::HoldInputScales
  bool kv_cache = false;  // "attn.k_scale" and "attn.v_scale" of each attention layer: KvCacheScales

  bool operator==(const HeldScales&) const = default;
};

// Gives the layers below `root` these scales as parameters, which then need captured buffers like any others. Call it
// before a Receiver takes the tree.
LAYERCAST_PUBLIC void HoldScales(Module& root, const HeldScales& scales);

}  // namespace layercast
