// The scales of an attention layer's key/value cache. Used by attention layers, as their child "attn"; a host program's
// own attention may have one too.
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

}  // namespace layercast
