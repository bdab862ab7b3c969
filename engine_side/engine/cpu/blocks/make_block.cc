#include "engine_side/engine/block.h"
#include "engine_side/engine/cpu/blocks/attention_block.h"
#include "engine_side/engine/cpu/blocks/delta_net_block.h"
#include "engine_side/engine/cpu/blocks/gated_mlp_block.h"
#include "engine_side/engine/cpu/blocks/latent_attention_block.h"
#include "engine_side/engine/cpu/blocks/mamba_block.h"
#include "engine_side/engine/cpu/blocks/mlp_block.h"
#include "engine_side/engine/cpu/blocks/moe_block.h"
#include "layercast/error.h"

namespace layercast {

std::unique_ptr<Block> MakeBlock(const Module& module, const std::string& path, const BlockContext& context) {
  if (const auto* attention = dynamic_cast<const Attention*>(&module)) {
    return std::make_unique<AttentionBlock>(*attention, path, context);
  }
  if (const auto* attention = dynamic_cast<const LatentAttention*>(&module)) {
    return std::make_unique<LatentAttentionBlock>(*attention, path, context);
  }
  if (const auto* mlp = dynamic_cast<const GatedMlp*>(&module)) {
    return std::make_unique<GatedMlpBlock>(*mlp, path, context);
  }
  if (const auto* moe = dynamic_cast<const MixtureOfExperts*>(&module)) {
    return std::make_unique<MoeBlock>(*moe, path, context);
  }
  if (const auto* mlp = dynamic_cast<const Mlp*>(&module)) {
    return std::make_unique<MlpBlock>(*mlp, path, context);
  }
  if (const auto* mixer = dynamic_cast<const MambaMixer*>(&module)) {
    return std::make_unique<MambaBlock>(*mixer, path, context);
  }
  if (const auto* net = dynamic_cast<const GatedDeltaNet*>(&module)) {
    return std::make_unique<DeltaNetBlock>(*net, path, context);
  }
  throw Error(ErrorCode::kUnsupported, "the built-in engine cannot compute " + path + " (" + module.class_name() + ")");
}

}  // namespace layercast
