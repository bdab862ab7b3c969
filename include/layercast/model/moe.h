// The layers of a mixture of experts: its router, and all of its experts as one layer. Used by model families.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/export.h"
#include "layercast/model/linear.h"

namespace layercast {

// Which experts a rank holds: `count` of them, from `first` on, `step` apart. Value.
struct LAYERCAST_PUBLIC LocalExperts {
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;

  // All of them without expert parallelism. Where ep_size does not divide them, the first ranks hold one more.
  static LocalExperts Of(const ParallelConfig& parallel, std::int64_t num_experts);
  // The expert's place among this rank's; nullopt: it is another rank's.
  std::optional<std::int64_t> LocalOf(std::int64_t expert) const;
};

// "weight" [num_experts, hidden_size], never quantized, and what routing may add: "bias", in the model's dtype, and
// "e_score_correction_bias", in fp32 whatever the model's dtype. Whole on every rank.
struct RouterOptions {
  bool fp32_weight = false;  // whatever the model's dtype
  bool bias = false;
  bool correction_bias = false;
};
class LAYERCAST_PUBLIC ExpertRouter final : public Module {
 public:
  ExpertRouter(const LayerContext& context, std::int64_t hidden_size, std::int64_t num_experts,
               const RouterOptions& options = {});
};

// Of engine_side/model/expert_names.h.
class ExpertNames;
struct ExpertName;

struct ExpertOptions {
  std::int64_t num_experts = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;  // of one expert
  bool gated = true;                   // gate and up; otherwise up alone, which w13 then is
  bool bias = false;
  bool transposed = false;   // "gate_up_proj" is [num_experts, hidden, 2 * intermediate] on disk, "down_proj" likewise
  bool interleaved = false;  // gate and up alternate in "gate_up_proj" and its bias: gate 0, up 0, gate 1, ...
  bool mixtral_names = false;  // an error calls a missing tensor w1, w2, w3, not gate_proj, down_proj, up_proj
  std::string size_field = "intermediate_size";  // of config.json: what errors call that size
};

// All experts of this rank, stacked: "w13_weight" [experts, 2 * intermediate, hidden] (gate over up), "w2_weight"
// [experts, hidden, intermediate] (down) and, where there are some, "w13_bias" and "w2_bias". Either each expert is
// split over tp_size ranks, or (expert parallelism) each is whole on one rank: other ranks' experts get no bytes.
//
// Experts without a gate have up alone in place of gate over up.
//
// Takes them as checkpoints hold them: expert by expert ("3.gate_proj.weight", "3.w1.weight"), with gate and up fused
// ("3.gate_up_proj.weight", "3.w13.weight"), or all in one tensor ("gate_up_proj" [num_experts, 2 * intermediate,
// hidden], "down_proj", "gate_up_proj_bias"; its own names, "w13_weight", mean the same). Blocks of MXFP4, which are
// never transposed, come as they are, with their exponents ("gate_up_proj_blocks" [num_experts, 2 * intermediate,
// hidden / 32, 16], "gate_up_proj_scales"), or unpacked and expert by expert ("3.gate_up_proj_blocks"). Codes and
// scales of FP8, INT8 and NVFP4 come expert by expert ("3.gate_proj.weight_scale_inv") or stacked like the weights
// ("gate_up_proj_scale_inv", "gate_up_proj.weight_scale", "gate_up_proj_weight_scale_2"); of scales of whole tensors an
// expert has one for gate and up together ("3.gate_up_proj.weight_scale", "gate_up_proj_scale" [num_experts]). Shard
// ids: w1, w2, w3; w13 where gate and up alternate or have one scale; w1 for up where there is no gate.
class LAYERCAST_PUBLIC FusedMoE final : public QuantizableLayer {
 public:
  FusedMoE(const LayerContext& context, const ExpertOptions& options);
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;
  std::vector<Box> Padding(std::uint32_t parameter) const override;
  std::vector<ExpectedTensor> Expected(std::uint32_t parameter, std::string_view path) const override;
  std::string WhyNotSliced() const override;
  // Of all experts: ranks decide alike.
  std::vector<std::vector<FusedModules>> CheckpointModules(std::string_view path) const override;
  const LocalExperts& local() const { return local_; }

 protected:
  std::span<const std::string_view> input_scale_names() const override;

 private:
  struct Slot;                                // what a parameter holds
  struct Part;                                // gate, up or down, of a weight or a bias
  bool takes_blocks() const;                  // of MXFP4
  template <class Named>                      // Slot or ExpertName
  bool is_one_number(const Named& of) const;  // for each expert: the scale of a whole tensor
  ExpertNames Names() const;
  std::optional<ExpertName> Parse(std::string_view name) const;
  std::uint32_t IndexOf(const Slot& slot) const;
  Slot SlotOf(std::uint32_t parameter) const;
  Shape ShapeOf(const ExpertName& named) const;
  std::vector<Part> PartsOf(const ExpertName& named) const;

  const ExpertOptions options_;
  const ParallelConfig parallel_;
  const LocalExperts local_;
  const std::int64_t tp_size_, tp_rank_;  // of one expert
  const std::int64_t slice_;              // of intermediate_size, this rank's
};

}  // namespace layercast
