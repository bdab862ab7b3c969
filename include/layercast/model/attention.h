// Attention as decoders have it, and the constants that an engine computes it with. Used by model families.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/config.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/linear.h"
#include "layercast/model/module.h"

namespace layercast {

// The scales of an attention layer's key/value cache, as its child "attn"; a host program's own attention may have one
// too. "k_scale" and "v_scale", fp32 [1], positive, the same on every rank. Kernels divide by them as they write the
// cache, and multiply by them as they read it. If a version has neither, both are 1.0. A checkpoint's "kv_scale" fills
// both, and "k_scale" alone fills "v_scale" too. Until Hold says that the engine has such scales, the layer has no
// parameters, and skips whatever checkpoints hold for it. Resource, as every Module.
class LAYERCAST_PUBLIC KvCacheScales final : public Module {
 public:
  KvCacheScales();
  // Says whether the engine has these scales. Must not be called during a load.
  void Hold(bool hold);

  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;
  std::span<const SkipRule> skip_rules() const override;
};

// How a token's position rotates the first `dim` elements of a head. Value.
struct RotaryEmbedding {
  RopeConfig rope;
  std::int64_t dim = 0;            // even; 0: no element is rotated
  std::int64_t max_positions = 0;  // max_position_embeddings, which some types of rope are defined by

  bool operator==(const RotaryEmbedding&) const = default;
};

// What families' attention differs in. Value.
struct AttentionOptions {
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;             // there are q_norm and k_norm, each over one head's head_dim elements
  bool qk_norm_over_heads = false;  // there are q_norm and k_norm, each over the heads of all ranks together
  bool sinks = false;               // each head has a score of no token, which takes its share of the softmax
  // q_proj holds, for each head, a query and as many gates, whose sigmoids multiply the head's output.
  bool output_gate = false;
  bool rotary = true;                        // false: positions matter only to the causal mask
  std::optional<double> scale = {};          // of query times key; empty: 1 / sqrt(head_dim)
  std::optional<double> logit_softcap = {};  // scores become cap * tanh(score / cap); empty: they stay as they are
};

// What one layer's attention is computed with on this rank. Value.
struct AttentionSpec {
  AttentionHeads heads;             // this rank's
  bool output_gate = false;         // each query head of qkv_proj is followed by its gate
  double scale = 1.0;               // of query times key
  double logit_softcap = 0.0;       // 0: none
  std::int64_t sliding_window = 0;  // a token sees so many positions, up to and including its own; 0: all
  RotaryEmbedding rotary;
  bool sinks = false;
};

// A layer's attention: qkv_proj, o_proj, attn (the scales of its KV cache) and, if the options ask for them, q_norm,
// k_norm and the parameter "sinks" [num_heads / tp_size]. Its window and rope are what the configuration says for
// `layer`. Resource, as every Module.
class LAYERCAST_PUBLIC Attention final : public Module {
 public:
  Attention(const LayerContext& context, const ModelConfig& config, std::int64_t layer,
            const AttentionOptions& options);
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;
  const AttentionSpec& spec() const { return spec_; }

 private:
  void AddNorms(const LayerContext& context, const ModelConfig& config, const AttentionOptions& options);

  ParallelConfig parallel_;
  AttentionSpec spec_;
};

}  // namespace layercast
