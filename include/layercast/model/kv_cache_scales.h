// The scales of an attention layer's key/value cache. Used by attention layers, whose child "attn" they are; the child
// of that name of a host program's own attention may be one too.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/module.h"

namespace layercast {

// "k_scale" and "v_scale", fp32 [1], positive: kernels divide by them as they write the cache, and multiply as they
// read it. The same on every rank. A version that has none of them makes both 1.0; one scale for both, "kv_scale",
// fills both. The layer has no parameters, and skips whatever checkpoints hold for it, unless its engine has such
// scales.
class LAYERCAST_PUBLIC KvCacheScales final : public Module {
 public:
  KvCacheScales();
  // Whether the engine has them. Not while somebody is loading.
  void Hold(bool hold);

  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;
  std::span<const SkipRule> skip_rules() const override;
};

}  // namespace layercast
