#include "layercast/model/latent_attention.h"

#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine_side/model/config/config_fields.h"
#include "engine_side/model/tree/fit.h"
#include "layercast/model/attention.h"
#include "layercast/model/norm.h"

namespace layercast {
namespace {

// Yarn's correction of attention scores, as in DeepSeek's models. 1 if the configuration asks for none.
double ScoreFactor(const RopeConfig& rope) {
  const auto number = [&](const char* name) {
    const auto found = rope.numbers.find(name);
    return found == rope.numbers.end() ? 0.0 : found->second;
  };
  const double by = number("mscale_all_dim");
  const double factor = number("factor");
  if (rope.type == "default" || by == 0.0 || factor <= 1.0) return 1.0;
  const double mscale = 0.1 * by * std::log(factor) + 1.0;
  return mscale * mscale;
}

std::int64_t HeadsOf(const LayerContext& context, const LatentSizes& sizes) {
  CheckParallel(context.parallel);
  return Divide("num_attention_heads", sizes.num_heads, "tp_size", context.parallel.tp_size);
}

std::vector<ColumnParallelLinear::Shard> ByHead(const LayerContext& context, const LatentSizes& sizes) {
  const std::int64_t of_head = sizes.qk_nope_head_dim + sizes.v_head_dim;
  const std::int64_t rows = HeadsOf(context, sizes) * of_head;
  return {{{}, {}, sizes.num_heads * of_head, rows, context.parallel.tp_rank * rows}};
}

}  // namespace

LatentAttentionSpec LatentAttentionSpec::Parse(const ModelConfig& config) {
  const ConfigFields fields = ConfigFields::Of(config);
  LatentAttentionSpec spec;
  spec.sizes = {.num_heads = config.num_attention_heads,
                .q_lora_rank = fields.Find("q_lora_rank") == nullptr ? 0 : fields.Size("q_lora_rank"),
                .kv_lora_rank = fields.Size("kv_lora_rank"),
                .qk_nope_head_dim = fields.Size("qk_nope_head_dim"),
                .qk_rope_head_dim = fields.Size("qk_rope_head_dim"),
                .v_head_dim = fields.Size("v_head_dim")};
  if (spec.sizes.qk_rope_head_dim % 2 != 0) {
    fields.Refuse("qk_rope_head_dim", "an even number", spec.sizes.qk_rope_head_dim);
  }
  spec.scale = ScoreFactor(config.rope) / std::sqrt(static_cast<double>(spec.sizes.qk_head_dim()));
  spec.bias = config.attention_bias;
  spec.interleaved = fields.Flag("rope_interleave", true);
  spec.rotary = {config.rope, spec.sizes.qk_rope_head_dim, config.max_position_embeddings};
  return spec;
}

LatentUpProjection::LatentUpProjection(const LayerContext& context, const LatentSizes& sizes)
    : ColumnParallelLinear("LatentUpProjection", context, Shape{sizes.kv_lora_rank}, ByHead(context, sizes), false) {
  const TensorSpec weight = parameters()[kWeight].spec;
  const std::int64_t heads = HeadsOf(context, sizes);
  const std::int64_t latent = sizes.kv_lora_rank;
  const std::int64_t keys = sizes.qk_nope_head_dim;
  const std::int64_t of_head = (keys + sizes.v_head_dim) * latent;
  using View = DerivedTensor::StridedView;
  // The rows of a head that make keys already are W_UK_T; the other rows are W_UV transposed.
  AddDerived({{"W_UK_T", weight.dtype, {heads, keys, latent}}, {weight}, View{{of_head, latent, 1}, 0}});
  AddDerived(
      {{"W_UV", weight.dtype, {heads, latent, sizes.v_head_dim}}, {weight}, View{{of_head, 1, latent}, keys * latent}});
}

LatentAttention::LatentAttention(const LayerContext& context, const ModelConfig& config,
                                 const LatentAttentionSpec& spec)
    : Module("LatentAttention"), spec_(spec), local_heads_(HeadsOf(context, spec.sizes)) {
  const LatentSizes& sizes = spec.sizes;
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t queries = sizes.num_heads * sizes.qk_head_dim();
  const std::int64_t latent = sizes.kv_lora_rank + sizes.qk_rope_head_dim;
  if (sizes.q_lora_rank != 0) {
    const std::vector<MergedShard> shards = {{"q_a_proj", sizes.q_lora_rank}, {"kv_a_proj_with_mqa", latent}};
    AddChild("fused_qkv_a_proj", std::make_unique<MergedReplicatedLinear>(context, hidden, shards, spec.bias));
    AddChild("q_a_layernorm", std::make_unique<RMSNorm>(context, sizes.q_lora_rank));
    AddChild("q_b_proj", std::make_unique<ColumnParallelLinear>(context, sizes.q_lora_rank, queries, false));
  } else {
    AddChild("kv_a_proj_with_mqa", std::make_unique<ReplicatedLinear>(context, hidden, latent, spec.bias));
    AddChild("q_proj", std::make_unique<ColumnParallelLinear>(context, hidden, queries, false));
  }
  AddChild("kv_a_layernorm", std::make_unique<RMSNorm>(context, sizes.kv_lora_rank));
  AddChild("kv_b_proj", std::make_unique<LatentUpProjection>(context, sizes));
  AddChild("o_proj",
           std::make_unique<RowParallelLinear>(context, sizes.num_heads * sizes.v_head_dim, hidden, spec.bias));
  AddChild("attn", std::make_unique<KvCacheScales>());
}

}  // namespace layercast
