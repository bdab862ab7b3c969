#include "engine_side/model/families/draft_layers.h"

#include <utility>
#include <vector>

#include "engine_side/model/tree/group.h"
#include "layercast/error.h"
#include "layercast/model/linear.h"
#include "layercast/model/norm.h"

namespace layercast {
namespace {

std::string DraftLayer(const std::string& root, const ModelConfig& config, std::int64_t index) {
  return root + ".layers." + std::to_string(config.num_hidden_layers + index);
}

// Adds the draft's own parts to a decoder layer, beside the layer's own, which is where checkpoints have them.
std::unique_ptr<DecoderLayer> WithDraftParts(const LayerContext& context, const ModelConfig& config,
                                             std::unique_ptr<DecoderLayer> layer) {
  const std::int64_t size = config.hidden_size;
  const auto norm = [&] { return std::make_unique<RMSNorm>(context, size, config.rms_norm_eps); };
  layer->AddPart("embed_tokens", SharedEmbedding());
  layer->AddPart("enorm", norm());
  layer->AddPart("hnorm", norm());
  layer->AddPart("eh_proj", std::make_unique<ReplicatedLinear>(context.Unquantized(), 2 * size, size, false));
  auto head = std::make_unique<Group>("SharedHead");
  head->AddChild("norm", norm());
  head->AddChild("head", SharedHead(config));
  layer->AddPart("shared_head", std::move(head));
  return layer;
}

}  // namespace

NameRule DropDraft(std::string prefix) {
  return NameRule::Drop(NameRule::Match::kPrefix, std::move(prefix), "a draft layer (MTP) is not served");
}

WeightsMapper DropDraftLayers(const ModelConfig& config, const MoeConfig& moe) {
  std::vector<NameRule> rules;
  for (std::int64_t i = 0; i < moe.num_draft_layers; ++i) {
    rules.push_back(DropDraft(DraftLayer("model", config, i)));
  }
  return WeightsMapper(std::move(rules));
}

DraftModel MakeDraftLayers(const LayerContext& context, const ModelConfig& config, const MoeConfig& moe,
                           const DecoderForCausalLM::MakeLayer& make_layer) {
  if (moe.num_draft_layers == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                "config.json: num_nextn_predict_layers: expected at least 1 for a draft model, got 0");
  }
  auto layers = std::make_unique<Group>("Layers");
  std::vector<NameRule> rules;
  for (std::int64_t i = 0; i < moe.num_draft_layers; ++i) {
    layers->AddChild(std::to_string(config.num_hidden_layers + i),
                     WithDraftParts(context, config, make_layer(config.num_hidden_layers + i)));
    rules.push_back(NameRule::Prefix(DraftLayer("model", config, i), DraftLayer(kDraftRoot, config, i)));
  }
  auto tree = std::make_unique<Group>("DraftLayers");
  tree->AddChild("layers", std::move(layers));
  return {std::move(tree), WeightsMapper(std::move(rules))};
}

std::unique_ptr<Module> SharedEmbedding() {
  return std::make_unique<SharedWithTarget>("VocabParallelEmbedding", "model.embed_tokens");
}

std::unique_ptr<Module> SharedHead(const ModelConfig& target) {
  return std::make_unique<SharedWithTarget>("ParallelLMHead",
                                            target.tie_word_embeddings ? "model.embed_tokens" : "lm_head");
}

}  // namespace layercast
