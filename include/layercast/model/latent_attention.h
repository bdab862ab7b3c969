// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), and the constants that an engine computes it with. The
// keys and values of all heads are made from one small vector for each token, and only that vector is cached. Used by
// model families.
#pragma once

#include <cstdint>

#include "layercast/export.h"
#include "layercast/model/attention.h"
#include "layercast/model/config.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/linear.h"
#include "layercast/model/module.h"

namespace layercast {

// Value.
struct LatentSizes {
  std::int64_t num_heads = 0;
  std::int64_t q_lora_rank = 0;       // size of the small vector that queries are made from; 0: there is none
  std::int64_t kv_lora_rank = 0;      // size of the small vector that keys and values are made from
  std::int64_t qk_nope_head_dim = 0;  // size of the part of a query and a key that positions do not rotate
  std::int64_t qk_rope_head_dim = 0;  // size of the part that positions rotate; all heads share the key's
  std::int64_t v_head_dim = 0;

  std::int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
};

// What latent attention is computed with. Value.
struct LAYERCAST_PUBLIC LatentAttentionSpec {
  // Throws kInvalidArgument, naming the field, if one is missing or has an impossible value. A field that may be left
  // out gets the default that transformers has for the `model_type`.
  static LatentAttentionSpec Parse(const ModelConfig& config);

  LatentSizes sizes;        // of the whole model
  double scale = 1.0;       // of query times key; with yarn's correction
  bool bias = false;        // the projections from and to the hidden state have one, except q_proj
  bool interleaved = true;  // positions rotate the pairs (2i, 2i + 1), not (i, i + n / 2)
  RotaryEmbedding rotary;
};

// kv_b_proj, which makes keys and values from the small vector: "weight" [heads * (nope + v), kv_lora_rank], for each
// head the rows of the key, then those of the value. An engine that caches the small vector multiplies by parts of this
// weight, which are served beside it: "W_UK_T" [heads, nope, kv_lora_rank] and "W_UV" [heads, kv_lora_rank, v].
class LAYERCAST_PUBLIC LatentUpProjection final : public ColumnParallelLinear {
 public:
  LatentUpProjection(const LayerContext& context, const LatentSizes& sizes);
};

// A layer's latent attention: fused_qkv_a_proj (q_a_proj and kv_a_proj_with_mqa), q_a_layernorm and q_b_proj, or, if
// queries have no small vector, kv_a_proj_with_mqa and q_proj; then kv_a_layernorm, kv_b_proj, o_proj and attn (the
// scales of its cache). A rank holds whole heads, and all of the layers that make the small vectors. Resource, as every
// Module.
class LAYERCAST_PUBLIC LatentAttention final : public Module {
 public:
  LatentAttention(const LayerContext& context, const ModelConfig& config, const LatentAttentionSpec& spec);
  const LatentAttentionSpec& spec() const { return spec_; }
  std::int64_t local_heads() const { return local_heads_; }  // this rank's

 private:
  LatentAttentionSpec spec_;
  std::int64_t local_heads_;
};

}  // namespace layercast
