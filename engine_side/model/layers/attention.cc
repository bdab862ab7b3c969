#include "layercast/model/attention.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "engine_side/model/tree/fit.h"
#include "layercast/error.h"
#include "layercast/model/norm.h"

namespace layercast {
namespace {

RotaryEmbedding RotaryOf(const ModelConfig& config, const RopeConfig& rope) {
  const auto part = rope.numbers.find("partial_rotary_factor");
  const double factor = part == rope.numbers.end() ? 1.0 : part->second;
  const auto dim = static_cast<std::int64_t>(static_cast<double>(config.head_dim) * factor);
  if (dim < 2 || dim > config.head_dim || dim % 2 != 0) {
    const std::string part_of =
        part == rope.numbers.end() ? "" : "partial_rotary_factor " + std::to_string(factor) + " of ";
    throw Error(ErrorCode::kInvalidArgument, "config.json: " + part_of + "head_dim " + std::to_string(config.head_dim) +
                                                 " makes " + std::to_string(dim) +
                                                 " rotated elements, expected an even number from 2 to head_dim");
  }
  return {rope, dim, config.max_position_embeddings};
}

}  // namespace

Attention::Attention(const LayerContext& context, const ModelConfig& config, std::int64_t layer,
                     const AttentionOptions& options)
    : Module("Attention"), parallel_(context.parallel) {
  const AttentionHeads heads{config.num_attention_heads, config.num_key_value_heads, config.head_dim, 0};
  AttentionHeads projected = heads;
  if (options.output_gate) {
    // QKVParallelLinear would check twice the number of heads, which tp_size may divide even if it does not divide the
    // heads.
    Divide("num_attention_heads", heads.num_heads, "tp_size", context.parallel.tp_size);
    projected.num_heads *= 2;
  }
  auto qkv = std::make_unique<QKVParallelLinear>(context, config.hidden_size, projected, options.qkv_bias);
  spec_.heads = qkv->local_heads();
  if (options.output_gate) spec_.heads.num_heads /= 2;
  spec_.output_gate = options.output_gate;
  spec_.scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  spec_.logit_softcap = options.logit_softcap.value_or(0.0);
  spec_.sliding_window = config.WindowOf(layer);
  if (options.rotary) spec_.rotary = RotaryOf(config, config.RopeOf(layer));
  AddChild("qkv_proj", std::move(qkv));
  AddChild("o_proj", std::make_unique<RowParallelLinear>(context, heads.num_heads * heads.head_dim, config.hidden_size,
                                                         options.output_bias));
  AddNorms(context, config, options);
  AddChild("attn", std::make_unique<KvCacheScales>());
  spec_.sinks = options.sinks;
  if (options.sinks) AddParameter({{"sinks", context.dtype, {spec_.heads.num_heads}}, ShardAxis::kRows, false, {}});
}

void Attention::AddNorms(const LayerContext& context, const ModelConfig& config, const AttentionOptions& options) {
  const auto add = [&](const char* name, std::int64_t heads) {
    if (options.qk_norm_over_heads) {
      const std::int64_t parts = std::min<std::int64_t>(context.parallel.tp_size, heads);
      AddChild(name, std::make_unique<ParallelRMSNorm>(context, heads * config.head_dim, parts, config.rms_norm_eps));
    } else if (options.qk_norm) {
      AddChild(name, std::make_unique<RMSNorm>(context, config.head_dim, config.rms_norm_eps));
    }
  };
  add("q_norm", config.num_attention_heads);
  add("k_norm", config.num_key_value_heads);
}

std::vector<PlacedPiece> Attention::Place(std::string_view name, std::string_view /*shard_id*/,
                                          const TensorSpec& spec) const {
  const std::uint32_t index = ParameterIndex(name);
  return PlaceEqualParts(parallel_, index, parameters()[index].spec, spec);
}

}  // namespace layercast
