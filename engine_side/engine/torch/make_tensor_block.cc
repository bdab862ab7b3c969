#include "engine_side/engine/torch/tensor_attention.h"
#include "engine_side/engine/torch/tensor_block.h"
#include "engine_side/engine/torch/tensor_latent_attention.h"
#include "engine_side/engine/torch/tensor_mlp.h"
#include "engine_side/engine/torch/tensor_moe.h"
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
  throw Error(ErrorCode::kUnsupported,
              "the decode step in tensors cannot compute " + path + " (" + module.class_name() + ")");
}

}  // namespace layercast
