#include "engine_side/engine/torch/blocks/tensor_attention.h"
#include "engine_side/engine/torch/blocks/tensor_delta_net.h"
#include "engine_side/engine/torch/blocks/tensor_latent_attention.h"
#include "engine_side/engine/torch/blocks/tensor_mamba.h"
#include "engine_side/engine/torch/blocks/tensor_mlp.h"
#include "engine_side/engine/torch/blocks/tensor_moe.h"
#include "engine_side/engine/torch/tensors/tensor_block.h"
#include "layercast/error.h"

namespace layercast {

std::unique_ptr<TensorBlock> MakeTensorBlock(const Module& module, const std::string& path,
                                             const TensorContext& context) {
  if (const auto* attention = dynamic_cast<const Attention*>(&module)) {
    return std::make_unique<TensorAttention>(*attention, path, context);
  }
  if (const auto* attention = dynamic_cast<const LatentAttention*>(&module)) {
    return std::make_unique<TensorLatentAttention>(*attention, path, context);
  }
  if (const auto* mlp = dynamic_cast<const GatedMlp*>(&module)) {
    return std::make_unique<TensorGatedMlp>(*mlp, path, context);
  }
  if (const auto* moe = dynamic_cast<const MixtureOfExperts*>(&module)) {
    return std::make_unique<TensorMoe>(*moe, path, context);
  }
  if (const auto* mlp = dynamic_cast<const Mlp*>(&module)) return std::make_unique<TensorMlp>(*mlp, path, context);
  if (const auto* mixer = dynamic_cast<const MambaMixer*>(&module)) {
    return std::make_unique<TensorMamba>(*mixer, path, context);
  }
  if (const auto* net = dynamic_cast<const GatedDeltaNet*>(&module)) {
    return std::make_unique<TensorDeltaNet>(*net, path, context);
  }
  throw Error(ErrorCode::kUnsupported,
              "the decode step in tensors cannot compute " + path + " (" + module.class_name() + ")");
}

}  // namespace layercast
