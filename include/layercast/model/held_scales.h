// Static scales that an engine holds beside those of its weights: the ones that its kernels quantize activations and KV
// caches with. An engine whose kernels use none needs nothing of this. Used where a tree is built, and by attention
// layers, whose child "attn" has those of the cache; a host program's own attention may have one too.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/module.h"

namespace layercast {

// "k_scale" and "v_scale", fp32 [1], positive, the same on every rank. Kernels divide by them as they write the cache,
// and multiply by them as they read it. If a version has neither, both are 1.0. A checkpoint's "kv_scale" fills both,
// and "k_scale" alone fills "v_scale" too. Until Hold says that the engine has such scales, the layer has no
// parameters, and skips whatever checkpoints hold for it. Resource, as every Module.
class LAYERCAST_PUBLIC KvCacheScales final : public Module {
 public:
  KvCacheScales();
  // Says whether the engine has these scales. Must not be called during a load.
  void Hold(bool hold);

  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;
  std::span<const SkipRule> skip_rules() const override;
};

// Which of these scales an engine holds. Value.
struct HeldScales {
  bool inputs = false;    // an "input_scale" for each layer that a recipe applies to: QuantizableLayer::HoldInputScales
  bool kv_cache = false;  // "attn.k_scale" and "attn.v_scale" of each attention layer: KvCacheScales

  bool operator==(const HeldScales&) const = default;
};

// Gives the layers below `root` these scales as parameters, which then need captured buffers like any others. Call it
// before a Receiver takes the tree.
LAYERCAST_PUBLIC void HoldScales(Module& root, const HeldScales& scales);

}  // namespace layercast
