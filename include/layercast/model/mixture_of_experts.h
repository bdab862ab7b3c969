// The feed-forward part of a decoder layer that is a mixture of experts. Used by model families.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "layercast/export.h"
#include "layercast/model/config.h"
#include "layercast/model/moe.h"
#include "layercast/model/moe_config.h"

namespace layercast {

// How a token's experts are picked, and how much each of them counts. Value.
struct Routing {
  enum class Score : std::uint8_t { kSoftmax, kSigmoid };
  Score score = Score::kSoftmax;   // of all experts, or of each
  bool normalize = false;          // the weights of those that are picked add up to one
  double normalize_epsilon = 0.0;  // added to their sum
  bool fp32_logits = false;        // logits are not rounded to the model's dtype ...
  bool round_weights = false;      // ... and weights are
  std::int64_t group_best = 2;     // so many of its best experts together say how good a group is

  // As the configuration says.
  std::int64_t top_k = 1;
  double scale = 1.0;           // multiplies the weights in the end
  std::int64_t num_groups = 1;  // of neighbouring experts: only those of the best `top_groups` are picked
  std::int64_t top_groups = 1;
};

// What an expert makes of gate and up in place of act(gate) * up: with g = min(gate, limit) and u = up within -limit
// and limit, (u + 1) * g * sigmoid(alpha * g). Value.
struct ClampedGate {
  double alpha = 0.0;
  double limit = 0.0;
};

// What families differ in. Value.
struct MoeOptions {
  Routing routing = {};
  RouterOptions router = {};
  std::string router_name = "gate";
  ExpertOptions experts = {};  // sizes are the configuration's
  std::optional<ClampedGate> clamped_gate = {};
  std::string shared_name = {};  // "shared_expert"; empty: the family has none
  bool shared_gate = false;  // shared_expert_gate: a number for each token that multiplies the shared expert's output
  std::string other_name = {};  // that checkpoints have for the whole block beside its own; empty: none
};

// A router, experts and, where family and configuration have one, the shared expert: the sum of what the experts that
// the router picks, and the shared one, make of a token. Where the configuration has a moe_latent_size, experts take
// and give vectors of that size: "fc1_latent_proj" leads there, "fc2_latent_proj" back.
class LAYERCAST_PUBLIC MixtureOfExperts final : public Module {
 public:
  // `moe` has the numbers of `options.routing`.
  MixtureOfExperts(const LayerContext& context, const ModelConfig& config, const MoeConfig& moe,
                   const MoeOptions& options);
  std::span<const ShardName> shard_names() const override {
    return {&other_name_, options_.other_name.empty() ? 0U : 1U};
  }

  const MoeOptions& options() const { return options_; }
  const FusedMoE& experts() const { return *experts_; }
  const std::string& hidden_act() const { return hidden_act_; }  // "silu"

 private:
  void AddLatentProjections(const LayerContext& context, const ModelConfig& config, std::int64_t size);
  std::unique_ptr<Module> MakeShared(const LayerContext& context, const ModelConfig& config,
                                     const MoeConfig& moe) const;

  MoeOptions options_;
  ShardName other_name_;  // of options_
  std::string hidden_act_;
  const FusedMoE* experts_ = nullptr;
};

// The feed-forward part of that layer: dense where the configuration says so.
LAYERCAST_PUBLIC std::unique_ptr<Module> MakeFeedForward(const LayerContext& context, const ModelConfig& config,
                                                         const MoeConfig& moe, std::int64_t layer,
                                                         const MoeOptions& options);

}  // namespace layercast
