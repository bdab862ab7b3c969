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

// Which experts a rank holds: `count` of them, from number `first` on, `step` apart. Value.
struct LAYERCAST_PUBLIC LocalExperts {
  std::int64_t first = 0;
  std::int64_t step = 1;
  std::int64_t count = 0;

  // Without expert parallelism, a rank holds all experts. If ep_size does not divide their number, the first ranks hold
  // one more.
  static LocalExperts Of(const ParallelConfig& parallel, std::int64_t num_experts);
  // The expert's index among this rank's; nullopt: it is another rank's.
  std::optional<std::int64_t> LocalOf(std::int64_t expert) const;
};

// What families' routers differ in. Value.
struct RouterOptions {
  bool fp32_weight = false;  // the weight is fp32 whatever the model's dtype
  bool bias = false;
  bool correction_bias = false;
};

// A router: "weight" [num_experts, hidden_size], never quantized, and, if the options ask for them, "bias" in the
// model's dtype and "e_score_correction_bias" in fp32 whatever the model's dtype. Whole on every rank. Resource, as
// every Module.
class LAYERCAST_PUBLIC ExpertRouter final : public Module {
 public:
  ExpertRouter(const LayerContext& context, std::int64_t hidden_size, std::int64_t num_experts,
               const RouterOptions& options = {});
};

// engine_side/model/layers/expert_names.h defines these two.
class ExpertNames;
struct ExpertName;

// What families' experts differ in, and their sizes. Value.
struct ExpertOptions {
  std::int64_t num_experts = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;  // of one expert
  bool gated = true;                   // an expert has gate and up; false: it has up alone, which w13 then holds
  bool bias = false;
  bool transposed = false;   // "gate_up_proj" is [num_experts, hidden, 2 * intermediate] on disk, "down_proj" likewise
  bool interleaved = false;  // gate and up alternate in "gate_up_proj" and its bias: gate 0, up 0, gate 1, ...
  bool mixtral_names = false;  // an error calls a missing tensor w1, w2, w3, not gate_proj, down_proj, up_proj
  std::string size_field = "intermediate_size";  // config.json's field for intermediate_size, for errors
};

// All experts of this rank, stacked: "w13_weight" [experts, 2 * intermediate, hidden] (gate over up), "w2_weight"
// [experts, hidden, intermediate] (down) and, if the experts have biases, "w13_bias" and "w2_bias". Experts without a
// gate have up alone in place of gate over up. Either each expert is split over tp_size ranks, or, with expert
// parallelism, each is whole on one rank, and the other ranks get no bytes of it. Resource, as every Module.
//
// FusedMoE takes weights in all forms in which checkpoints hold them:
// - Expert by expert: "3.gate_proj.weight", "3.w1.weight"; or with gate and up fused: "3.gate_up_proj.weight",
//   "3.w13.weight".
// - All experts in one tensor: "gate_up_proj" [num_experts, 2 * intermediate, hidden], "down_proj" and
//   "gate_up_proj_bias". The parameters' own names, such as "w13_weight", mean the same.
// - Blocks of MXFP4, which are never transposed: as they are, with their exponents ("gate_up_proj_blocks" [num_experts,
//   2 * intermediate, hidden / 32, 16], "gate_up_proj_scales"), or unpacked and expert by expert
//   ("3.gate_up_proj_blocks").
// - Codes and scales of FP8, INT8 and NVFP4: expert by expert ("3.gate_proj.weight_scale_inv"), or stacked like the
//   weights ("gate_up_proj_scale_inv", "gate_up_proj.weight_scale", "gate_up_proj_weight_scale_2"). If a scale is of a
//   whole tensor, an expert has one for gate and up together ("3.gate_up_proj.weight_scale", "gate_up_proj_scale"
//   [num_experts]).
//
// Its shard ids are w1, w2 and w3; w13 if gate and up alternate or share a scale; and w1 for up if there is no gate.
class LAYERCAST_PUBLIC FusedMoE final : public QuantizableLayer {
 public:
  FusedMoE(const LayerContext& context, const ExpertOptions& options);
  std::vector<PlacedPiece> Place(std::string_view name, std::string_view shard_id,
                                 const TensorSpec& spec) const override;
  std::vector<Box> Padding(std::uint32_t parameter) const override;
  std::vector<ExpectedTensor> Expected(std::uint32_t parameter, std::string_view path) const override;
  std::string WhyNotSliced() const override;
  // Names the modules of all experts, not just this rank's, so that all ranks decide alike.
  std::vector<std::vector<FusedModules>> CheckpointModules(std::string_view path) const override;
  const LocalExperts& local() const { return local_; }

 protected:
  std::span<const std::string_view> input_scale_names() const override;

 private:
  struct Slot;                                // what a parameter holds
  struct Part;                                // gate, up or down, of a weight or a bias
  bool takes_blocks() const;                  // weights come as blocks of MXFP4
  template <class Named>                      // Slot or ExpertName
  bool is_one_number(const Named& of) const;  // each expert has one number: the scale of a whole tensor
  ExpertNames Names() const;
  std::optional<ExpertName> Parse(std::string_view name) const;
  std::uint32_t IndexOf(const Slot& slot) const;
  Slot SlotOf(std::uint32_t parameter) const;
  Shape ShapeOf(const ExpertName& named) const;
  std::vector<Part> PartsOf(const ExpertName& named) const;

  const ExpertOptions options_;
  const ParallelConfig parallel_;
  const LocalExperts local_;
  const std::int64_t tp_size_, tp_rank_;  // by which each expert is split; 1 and 0: experts are whole
  const std::int64_t slice_;              // this rank's share of intermediate_size
};

}  // namespace layercast
