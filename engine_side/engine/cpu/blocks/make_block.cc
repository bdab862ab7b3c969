#include <utility>

#include "engine_side/engine/cpu/blocks/attention_block.h"
#include "engine_side/engine/cpu/blocks/block.h"
#include "engine_side/engine/cpu/blocks/delta_net_block.h"
#include "engine_side/engine/cpu/blocks/latent_attention_block.h"
#include "engine_side/engine/cpu/blocks/mamba_block.h"
#include "engine_side/engine/cpu/blocks/mlp_block.h"
#include "engine_side/engine/cpu/blocks/moe_block.h"

namespace layercast {
namespace {

struct Maker {
  using Made = std::unique_ptr<Block>;
  Made operator()(AttentionDescription& of) const { return std::make_unique<AttentionBlock>(std::move(of), context); }
  Made operator()(LatentAttentionDescription& of) const {
    return std::make_unique<LatentAttentionBlock>(std::move(of), context);
  }
  Made operator()(MlpDescription& of) const { return std::make_unique<MlpBlock>(std::move(of), context); }
  Made operator()(MoeDescription& of) const { return std::make_unique<MoeBlock>(std::move(of), context); }
  Made operator()(MambaDescription& of) const { return std::make_unique<MambaBlock>(std::move(of), context); }
  Made operator()(DeltaNetDescription& of) const { return std::make_unique<DeltaNetBlock>(std::move(of), context); }

  const BlockContext& context;
};

}  // namespace

std::unique_ptr<Block> MakeBlock(BlockDescription description, const BlockContext& context) {
  return std::visit(Maker{context}, description);
}

}  // namespace layercast
