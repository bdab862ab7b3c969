// Attention as decoders have it, and the constants that an engine computes it with.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/config.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/linear.h"
#include "layercast/model/module.h"

namespace layercast {

// How positions turn the first `dim` elements of a head. Value.
struct RotaryEmbedding {
  RopeConfig rope;
  std::int64_t dim = 0;            // even; 0: none is turned
  std::int64_t max_positions = 0;  // max_position_embeddings, which types of rope count from

  bool operator==(const RotaryEmbedding&) const = default;
};

struct AttentionOptions {
  bool qkv_bias = false;
  bool output_bias = false;
  bool qk_norm = false;             // q_norm, k_norm over head_dim
  bool qk_norm_over_heads = false;  // q_norm, k_norm over all heads together, those of all ranks
  bool sinks = false;               // each head has a score of no token, which takes its share of the softmax
  // q_proj holds, head by head, a query and as many gates, whose sigmoids multiply what the head attends to.
  bool output_gate = false;
  bool rotary = true;                        // false: positions show in nothing but the causal mask
  std::optional<double> scale = {};          // of query times key; 1 / sqrt(head_dim) where not said
  std::optional<double> logit_softcap = {};  // scores become cap * tanh(score / cap)
};

// What one layer's attention is computed with on this rank. Value.
struct AttentionSpec {
  AttentionHeads heads;             // this rank's
  bool output_gate = false;         // each query head of qkv_proj is followed by its gate
  double scale = 1.0;               // of query times key
  double logit_softcap = 0.0;       // 0: none
  std::int64_t sliding_window = 0;  // how many last positions a token sees, itself included; 0: all
  RotaryEmbedding rotary;
  bool sinks = false;
};

// qkv_proj, o_proj and, where asked for, q_norm, k_norm and "sinks" [num_heads / tp_size]; attn, the scales of its
// cache. Window and rope are what the configuration says of `layer`.
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
