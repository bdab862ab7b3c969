// Mamba-2's mixer (a selective state space, arXiv 2405.21060), and the constants that an engine computes it with. Used
// by model families. The layers are Modules, and so resources.
#pragma once

#include <cstdint>
#include <limits>
#include <string_view>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/layer_context.h"
#include "layercast/model/linear.h"
#include "layercast/model/module.h"

namespace layercast {

// Value.
struct MambaSizes {
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t state_size = 0;
  std::int64_t num_groups = 1;  // the heads of a group share B and C
  std::int64_t conv_kernel = 4;
  std::string_view heads_field = "num_heads";  // config.json's field for num_heads, for errors; a literal, not owned

  std::int64_t inner() const { return num_heads * head_dim; }
  std::int64_t group_inner() const { return inner() / num_groups; }
};

// Value.
struct MambaOptions {
  bool bias = false;  // of in_proj and out_proj
  bool conv_bias = true;
  double norm_epsilon = 1e-5;
  double time_step_min = 0.0;  // time steps are clamped to [time_step_min, time_step_max]
  double time_step_max = std::numeric_limits<double>::infinity();
};

// The projection into the mixer. Its rows are gate and x (both split by heads), B and C (split by groups; a single
// group is whole on every rank) and time steps (split by heads). Checkpoints hold them in one tensor, in this order.
class LAYERCAST_PUBLIC MambaInProjection final : public ColumnParallelLinear {
 public:
  MambaInProjection(const LayerContext& context, const MambaSizes& sizes, std::int64_t hidden_size, bool bias);
};

// The mixer's convolution, "weight" [channels, 1, conv_kernel]: causal, and of each channel of x, B and C on its own.
class LAYERCAST_PUBLIC MambaConv1d final : public ColumnParallelLinear {
 public:
  MambaConv1d(const LayerContext& context, const MambaSizes& sizes, bool bias);
};

// The norm before out_proj, "weight" [inner / tp_size]: an RMS norm of y * silu(gate), taken over each group.
class LAYERCAST_PUBLIC MambaGatedNorm final : public Module {
 public:
  MambaGatedNorm(const LayerContext& context, const MambaSizes& sizes);
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;

 private:
  ParallelConfig parallel_;
};

// A layer's mixer: in_proj, conv1d, norm and out_proj, and the parameters "A_log", "D" and "dt_bias", all
// [num_heads / tp_size]. "A_log" is fp32 whatever the model's dtype, and "A" = -exp(A_log) (fp32) derives from it. A
// rank holds whole heads, and either whole groups or a part of the only group.
class LAYERCAST_PUBLIC MambaMixer final : public Module {
 public:
  MambaMixer(const LayerContext& context, const MambaSizes& sizes, std::int64_t hidden_size,
             const MambaOptions& options);
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;

  const MambaSizes& sizes() const { return sizes_; }        // of the whole model
  const MambaSizes& local_sizes() const { return local_; }  // this rank's
  const MambaOptions& options() const { return options_; }

 private:
  ParallelConfig parallel_;
  MambaSizes sizes_, local_;
  MambaOptions options_;
};

}  // namespace layercast
