#include "layercast/model/attention.h"

#include <cmath>
#include <memory>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "layercast/model/norm.h"

namespace layercast {
namespace {

RotaryEmbedding RotaryOf(const ModelConfig& config, const RopeConfig& rope) {
  const auto part = rope.numbers.find("partial_rotary_factor");
  const double factor = part == rope.numbers.end() ? 1.0 : part->second;
  const auto dim = static_cast<std::int64_t>(static_cast<double>(config.head_dim) * factor);
  if (dim < 2 || dim > config.head_dim || dim % 2 != 0) {
    throw Error(ErrorCode::kInvalidArgument, "config.json: partial_rotary_factor " + std::to_string(factor) +
                                                 " of head_dim " + std::to_string(config.head_dim) + " makes " +
                                                 std::to_string(dim) +
                                                 " rotated elements, expected an even number from 2 to head_dim");
  }
  return {rope, dim, config.max_position_embeddings};
}

}  // namespace

Attention::Attention(const LayerContext& context, const ModelConfig& config, std::int64_t layer,
                     const AttentionOptions& options)
    : Module("Attention") {
  const AttentionHeads heads{config.num_attention_heads, config.num_key_value_heads, config.head_dim, 0};
  auto qkv = std::make_unique<QKVParallelLinear>(context, config.hidden_size, heads, options.qkv_bias);
  spec_.heads = qkv->local_heads();
  spec_.scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  spec_.logit_softcap = options.logit_softcap.value_or(0.0);
  spec_.sliding_window = config.WindowOf(layer);
  if (options.rotary) spec_.rotary = RotaryOf(config, config.RopeOf(layer));
  AddChild("qkv_proj", std::move(qkv));
  AddChild("o_proj", std::make_unique<RowParallelLinear>(context, heads.num_heads * heads.head_dim, config.hidden_size,
                                                         options.output_bias));
  if (!options.qk_norm) return;
  AddChild("q_norm", std::make_unique<RMSNorm>(context, config.head_dim, config.rms_norm_eps));
  AddChild("k_norm", std::make_unique<RMSNorm>(context, config.head_dim, config.rms_norm_eps));
}

}  // namespace layercast
