#include "engine_side/engine/blocks/decoder_description.h"

#include <utility>

#include "engine_side/engine/cpu/kernels/row_kernels.h"
#include "layercast/error.h"

namespace layercast {
namespace {

template <class Kind>
const Kind& AsKind(const Module* module, const std::string& path) {
  if (const auto* as_kind = dynamic_cast<const Kind*>(module)) return *as_kind;
  throw Error(ErrorCode::kUnsupported, "the built-in engine cannot compute " + path + " (" +
                                           (module == nullptr ? "not there" : module->class_name()) + ")");
}

// On the last stage of a pipeline an embedding is there for a tied head, or for a draft model, which is not computed.
std::optional<DecoderDescription::Embedding> DescribeEmbedding(const DecoderForCausalLM& model,
                                                               const Module& embed_tokens, CapturedWeights& weights,
                                                               AdapterLookup& adapters) {
  if (!embed_tokens.held_by().empty()) return std::nullopt;
  const std::string path = "model.embed_tokens";
  const auto& embedding = AsKind<VocabParallelEmbedding>(&embed_tokens, path);
  auto scale = static_cast<float>(model.options().embedding_scale);
  RoundTo(model.dtype(), {&scale, 1});
  return DecoderDescription::Embedding{weights.Find(embedding, path), embedding.range(), scale, adapters.Find(path)};
}

void AddSteps(const Module& layer, const std::string& path, const DescriptionContext& context,
              std::vector<StepDescription>& steps) {
  const Operands operands(layer, path, context);
  for (const ResidualStep& step : AsKind<DecoderLayer>(&layer, path).steps()) {
    steps.push_back({.norm = operands.Norm(step.norm),
                     .block = DescribeBlock(operands.Child(step.block), operands.PathOf(step.block), context),
                     .post_norm = operands.FindNorm(step.post_norm)});
  }
}

}  // namespace

const DecoderForCausalLM& AsDecoder(const Module& model) { return AsKind<DecoderForCausalLM>(&model, "the model"); }

DecoderDescription DescribeDecoder(const DecoderForCausalLM& model, std::span<const CapturedBuffer> buffers,
                                   const Device& device, RopeFunction make_rope, const char* pass,
                                   const AdapterSlots* adapters) {
  DecoderDescription described{.rotary = RotaryTables(std::move(make_rope), model.dtype()),
                               .dtype = model.dtype(),
                               .residual_dtype = model.options().fp32_residual ? DType::kF32 : model.dtype(),
                               .hidden_size = model.hidden_size(),
                               .vocab_size = model.vocab_size(),
                               .embedding = {},
                               .steps = {},
                               .head = {}};
  CapturedWeights weights(buffers, device);
  AdapterLookup lookup(adapters, device);
  const DescriptionContext context{weights, described.rotary, model.dtype(), pass, &lookup};
  const Operands operands(*model.FindChild("model"), "model", context);
  described.embedding = DescribeEmbedding(model, operands.Child("embed_tokens"), weights, lookup);
  if (operands.Child("norm").held_by().empty()) {
    const Module& head = *model.FindChild("lm_head");
    const WeightView rows = head.tied_to().empty() ? weights.Find(head, "lm_head") : described.embedding->rows;
    described.head = {operands.Norm("norm"), rows, model.options().logit_softcap, lookup.Find("lm_head")};
    described.head->norm.dtype = described.residual_dtype;
  }
  for (const auto& [name, layer] : operands.Child("layers").children()) {
    if (layer->held_by().empty()) AddSteps(*layer, "model.layers." + name, context, described.steps);
  }
  weights.CheckAllUsed();
  lookup.CheckAllUsed();
  return described;
}

}  // namespace layercast
