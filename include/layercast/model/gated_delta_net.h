// A gated delta net (linear attention whose state decays and is corrected, arXiv 2412.06464), and the constants that an
// engine computes it with. Used by model families.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/linear.h"
#include "layercast/model/module.h"

namespace layercast {

// Value.
struct DeltaNetSizes {
  std::int64_t num_key_heads = 0;    // there are as many query heads
  std::int64_t num_value_heads = 0;  // num_value_heads / num_key_heads of them share a key head
  std::int64_t key_head_dim = 0;
  std::int64_t value_head_dim = 0;
  std::int64_t conv_kernel = 4;

  std::int64_t keys() const { return num_key_heads * key_head_dim; }
  std::int64_t values() const { return num_value_heads * value_head_dim; }
};

// The order in which the rows of in_proj_qkvz and in_proj_ba lie, in memory and in a checkpoint that holds them fused.
enum class DeltaNetRows : std::uint8_t {
  // in_proj_qkvz has for each key head its query, key, values and gates; in_proj_ba the b and a of its values.
  kByKeyHead,
  // in_proj_qkvz has all queries, then all keys, values and gates; in_proj_ba all b, then all a. Checkpoints may hold
  // the four tensors in_proj_qkv, in_proj_z, in_proj_b and in_proj_a instead.
  kByPart,
};

// Value.
struct DeltaNetOptions {
  DeltaNetRows rows = DeltaNetRows::kByKeyHead;
  double norm_epsilon = 1e-6;
  std::string hidden_act = "silu";  // after the convolution
};

// The convolution before the delta rule, "weight" [channels, 1, conv_kernel]: causal, and of each channel of queries,
// keys and values on its own.
class LAYERCAST_PUBLIC DeltaNetConv1d final : public ColumnParallelLinear {
 public:
  DeltaNetConv1d(const LayerContext& context, const DeltaNetSizes& sizes);
};

// A layer's delta net: in_proj_qkvz, in_proj_ba, conv1d, norm [value_head_dim] and out_proj, and the parameters "A_log"
// and "dt_bias", both [num_value_heads / tp_size]. "A_log" is fp32 whatever the model's dtype, and "A" = -exp(A_log)
// (fp32) derives from it. A rank holds whole key heads, each with its values. Resource, as every Module.
class LAYERCAST_PUBLIC GatedDeltaNet final : public Module {
 public:
  GatedDeltaNet(const LayerContext& context, const DeltaNetSizes& sizes, std::int64_t hidden_size,
                const DeltaNetOptions& options);
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;

  const DeltaNetSizes& local_sizes() const { return local_; }  // this rank's
  const DeltaNetOptions& options() const { return options_; }

 private:
  ParallelConfig parallel_;
  DeltaNetSizes local_;
  DeltaNetOptions options_;
};

}  // namespace layercast
