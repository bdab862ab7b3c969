#include "engine_side/engine/cpu/decoder_parts.h"

#include "engine_side/engine/cpu/kernels/row_kernels.h"

namespace layercast {

const VocabParallelEmbedding& EmbeddingOf(const DecoderForCausalLM& model) {
  return AsKind<VocabParallelEmbedding>(model.FindChild("model")->FindChild("embed_tokens"), "model.embed_tokens");
}

std::optional<WeightView> FindHead(const DecoderForCausalLM& model, CapturedWeights& weights) {
  const Module* head = model.FindChild("lm_head");
  if (!head->tied_to().empty()) return std::nullopt;
  return weights.Find(*head, "lm_head");
}

float EmbeddingScaleOf(const DecoderForCausalLM& model) {
  auto scale = static_cast<float>(model.options().embedding_scale);
  RoundTo(model.dtype(), {&scale, 1});
  return scale;
}

}  // namespace layercast
