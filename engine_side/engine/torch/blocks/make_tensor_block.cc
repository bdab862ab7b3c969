#include "engine_side/engine/torch/blocks/tensor_attention.h"
#include "engine_side/engine/torch/blocks/tensor_delta_net.h"
#include "engine_side/engine/torch/blocks/tensor_latent_attention.h"
#include "engine_side/engine/torch/blocks/tensor_mamba.h"
#include "engine_side/engine/torch/blocks/tensor_mlp.h"
#include "engine_side/engine/torch/blocks/tensor_moe.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"

namespace layercast {
namespace {

struct Maker {
  using Made = std::unique_ptr<TensorBlock>;
  Made operator()(const AttentionDescription& of) const { return std::make_unique<TensorAttention>(of, context); }
  Made operator()(const LatentAttentionDescription& of) const {
    return std::make_unique<TensorLatentAttention>(of, context);
  }
  Made operator()(const MlpDescription& of) const { return std::make_unique<TensorMlp>(of, context); }
  Made operator()(const MoeDescription& of) const { return std::make_unique<TensorMoe>(of, context); }
  Made operator()(const MambaDescription& of) const { return std::make_unique<TensorMamba>(of, context); }
  Made operator()(const DeltaNetDescription& of) const { return std::make_unique<TensorDeltaNet>(of, context); }

  const TensorContext& context;
};

}  // namespace

std::unique_ptr<TensorBlock> MakeTensorBlock(const BlockDescription& description, const TensorContext& context) {
  return std::visit(Maker{context}, description);
}

}  // namespace layercast
