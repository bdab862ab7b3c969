// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434), and the constants that an engine computes it with: keys
// and values of all heads are made of one small vector for each token, which alone is cached.
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
  std::int64_t q_lora_rank = 0;       // of the queries' own small vector; 0: they are made of the hidden state
  std::int64_t kv_lora_rank = 0;      // of the vector that keys and values are made of
  std::int64_t qk_nope_head_dim = 0;  // of a query and a key that no position turns
  std::int64_t qk_rope_head_dim = 0;  // of those that positions turn; the key's is shared by all heads
  std::int64_t v_head_dim = 0;

  std::int64_t qk_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
};

// What latent attention is computed with. Value.
struct LAYERCAST_PUBLIC LatentAttentionSpec {
  // Throws kInvalidArgument, naming the field, for one that is missing or cannot be. What is left out is what
  // transformers takes for that `model_type`.
  static LatentAttentionSpec Parse(const ModelConfig& config);

  LatentSizes sizes;        // of the whole model
  double scale = 1.0;       // of query times key; with yarn's correction
  bool bias = false;        // of the projections from and to the hidden state, q_proj excepted
  bool interleaved = true;  // positions turn the pairs (2i, 2i + 1), not (i, i + n / 2)
  RotaryEmbedding rotary;
};

// "weight" [heads * (nope + v), kv_lora_rank], by heads: rows of the key, then rows of the value. An engine that caches
// the latent vector multiplies by parts of it, which are served beside it: "W_UK_T" [heads, nope, kv_lora_rank] and
// "W_UV" [heads, kv_lora_rank, v].
class LAYERCAST_PUBLIC LatentUpProjection final : public ColumnParallelLinear {
 public:
  LatentUpProjection(const LayerContext& context, const LatentSizes& sizes);
};

// fused_qkv_a_proj (q_a_proj and kv_a_proj_with_mqa), q_a_layernorm, q_b_proj; or, where queries have no vector of
// their own, kv_a_proj_with_mqa and q_proj. Then kv_a_layernorm, kv_b_proj, o_proj; attn, the scales of its cache. A
// rank holds whole heads, and all of what makes the small vectors.
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
