// EAGLE's draft models of Llama's kind, from checkpoints of their own. EAGLE has one or more of Llama's layers, the
// first without a norm before its attention. In EAGLE-3 the first layer attends to an embedding beside a hidden state,
// and the head has a vocabulary of its own. Both use the target's embedding. They are served in full precision,
// whatever the target's recipe.
#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/families/draft_layers.h"
#include "engine_side/model/families/families.h"
#include "engine_side/model/tree/group.h"
#include "layercast/model/embedding.h"
#include "layercast/model/linear.h"
#include "layercast/model/mlp.h"
#include "layercast/model/norm.h"

namespace layercast {
namespace {

constexpr auto kPrefix = NameRule::Match::kPrefix;

NameRule DropEagles(const std::string& part, const std::string& reason) {
  return NameRule::Drop(kPrefix, std::string(kDraftRoot) + "." + part, reason);
}

void CheckHidden(const ModelConfig& target, const ModelConfig& draft) {
  if (draft.hidden_size == target.hidden_size) return;
  ConfigFields::Refuse("hidden_size of the draft model: expected the target's " + std::to_string(target.hidden_size) +
                       ", got " + std::to_string(draft.hidden_size));
}

std::unique_ptr<Module> EagleNorm(const LayerContext& context, const ModelConfig& draft) {
  return std::make_unique<RMSNorm>(context, draft.hidden_size, draft.rms_norm_eps);
}

// `input_size` is the width of what queries, keys and values are computed from. The output is as wide as a hidden
// state.
std::unique_ptr<Module> EagleAttention(const LayerContext& context, const ModelConfig& draft, std::int64_t input_size) {
  const AttentionHeads heads{draft.num_attention_heads, draft.num_key_value_heads, draft.head_dim, 0};
  auto attention = std::make_unique<Group>("Attention");
  attention->AddChild("qkv_proj",
                      std::make_unique<QKVParallelLinear>(context, input_size, heads, draft.attention_bias));
  attention->AddChild("o_proj", std::make_unique<RowParallelLinear>(context, heads.num_heads * heads.head_dim,
                                                                    draft.hidden_size, draft.attention_bias));
  return attention;
}

std::unique_ptr<Group> EagleLayer(const LayerContext& context, const ModelConfig& draft, std::int64_t input_size) {
  auto layer = std::make_unique<Group>("EagleLayer");
  layer->AddChild("self_attn", EagleAttention(context, draft, input_size));
  layer->AddChild("post_attention_layernorm", EagleNorm(context, draft));
  layer->AddChild("mlp", std::make_unique<GatedMlp>(context, draft, draft.mlp_bias));
  return layer;
}

}  // namespace

DraftModel BuildEagle(const ModelConfig& target, const ModelConfig& draft, const ParallelConfig& parallel,
                      DType dtype) {
  CheckHidden(target, draft);
  const LayerContext context = LayerContext{.parallel = parallel, .dtype = dtype}.Unquantized();
  auto layers = std::make_unique<Group>("Layers");
  for (std::int64_t i = 0; i < draft.num_hidden_layers; ++i) {
    auto layer = EagleLayer(context, draft, draft.hidden_size);
    if (i > 0) layer->AddChild("input_layernorm", EagleNorm(context, draft));
    layers->AddChild(std::to_string(i), std::move(layer));
  }
  auto tree = std::make_unique<Group>("EagleModel");
  tree->AddChild("fc", std::make_unique<ReplicatedLinear>(context, 2 * draft.hidden_size, draft.hidden_size,
                                                          ConfigFields::Of(draft).Flag("bias", false)));
  tree->AddChild("layers", std::move(layers));
  return {std::move(tree), WeightsMapper({DropEagles("embed_tokens", "the draft model embeds as its target does"),
                                          DropEagles("lm_head", "the draft model's head is its target's")})};
}

DraftModel BuildEagle3(const ModelConfig& target, const ModelConfig& draft, const ParallelConfig& parallel,
                       DType dtype) {
  CheckHidden(target, draft);
  const LayerContext context = LayerContext{.parallel = parallel, .dtype = dtype}.Unquantized();
  const ConfigFields fields = ConfigFields::Of(draft);
  const std::int64_t size = draft.hidden_size;
  const bool has_own_tokens = fields.Find("draft_vocab_size") != nullptr;
  const std::int64_t vocabulary = fields.Size("draft_vocab_size", target.vocab_size, target.vocab_size);
  auto layers = std::make_unique<Group>("Layers");
  for (std::int64_t i = 0; i < draft.num_hidden_layers; ++i) {
    auto layer = EagleLayer(context, draft, i == 0 ? 2 * size : size);
    layer->AddChild("hidden_norm", EagleNorm(context, draft));
    layer->AddChild("input_layernorm", EagleNorm(context, draft));
    layers->AddChild(std::to_string(i), std::move(layer));
  }
  auto tree = std::make_unique<Group>("Eagle3Model");
  if (has_own_tokens) tree->AddParameter({{"d2t", DType::kI64, {vocabulary}}, ShardAxis::kNone, false, {}});
  tree->AddChild("fc", std::make_unique<ReplicatedLinear>(context, 3 * size, size, false));
  tree->AddChild("layers", std::move(layers));
  tree->AddChild("norm", EagleNorm(context, draft));
  tree->AddChild("lm_head", std::make_unique<ParallelLMHead>(context, vocabulary, size, false));
  const std::string root = kDraftRoot;
  std::vector<NameRule> names = {NameRule::Prefix(root + ".midlayer", root + ".layers.0"),
                                 DropEagles("embed_tokens", "the draft model embeds as its target does"),
                                 DropEagles("t2d", "t2d says what d2t does")};
  if (!has_own_tokens) names.push_back(DropEagles("d2t", "the draft model's tokens are its target's"));
  return {std::move(tree), WeightsMapper(std::move(names))};
}

}  // namespace layercast
