// A gated delta net (linear attention whose state decays and is corrected, arXiv 2412.06464), and the constants that an
// engine computes it with.
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
  std::int64_t num_key_heads = 0;    // of queries too
  std::int64_t num_value_heads = 0;  // equally many share a key head
  std::int64_t key_head_dim = 0;
  std::int64_t value_head_dim = 0;
  std::int64_t conv_kernel = 4;

  std::int64_t keys() const { return num_key_heads * key_head_dim; }
  std::int64_t values() const { return num_value_heads * value_head_dim; }
};

// In which order the rows of in_proj_qkvz and in_proj_ba lie, in memory as in a checkpoint that holds them fused.
enum class DeltaNetRows : std::uint8_t {
  kByKeyHead,  // for each key head its query, key, values and gates; its values' b and a
  // All queries, keys, values, gates; all b, a. Checkpoints may hold the four tensors in_proj_qkv, in_proj_z, in_proj_b
  // and in_proj_a instead.
  kByPart,
};

struct DeltaNetOptions {
  DeltaNetRows rows = DeltaNetRows::kByKeyHead;
  double norm_epsilon = 1e-6;
  std::string hidden_act = "silu";  // after the convolution
};

// "weight" [channels, 1, conv_kernel]: a causal convolution of each channel of queries, keys and values on its own.
class LAYERCAST_PUBLIC DeltaNetConv1d final : public ColumnParallelLinear {
 public:
  DeltaNetConv1d(const LayerContext& context, const DeltaNetSizes& sizes);
};

// in_proj_qkvz, in_proj_ba, conv1d, norm [value_head_dim], out_proj, and "A_log" (fp32 whatever the model's dtype) and
// "dt_bias" [num_value_heads / tp_size]; "A" = -exp(A_log) (fp32) derives from it. A rank holds whole key heads, each
// with its values.
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
