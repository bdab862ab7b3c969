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

namespace layercast {

// How a token's experts are picked, and how much each of them counts. Value.
struct Routing {
  enum class Score : std::uint8_t { kSoftmax, kSigmoid };
  Score score = Score::kSoftmax;   // a softmax over all experts' logits, or the sigmoid of each
  bool normalize = false;          // the weights of the experts that are picked are divided by their sum ...
  double normalize_epsilon = 0.0;  // ... to which this is added
  bool fp32_logits = false;        // true: logits are not rounded to the model's dtype
  bool round_weights = false;      // true: weights are rounded to the model's dtype
  std::int64_t group_best = 2;     // a group is as good as so many of its best experts together

  // The configuration's, which MixtureOfExperts fills in:
  std::int64_t top_k = 1;       // how many experts are picked for a token
  double scale = 1.0;           // multiplies the weights in the end
  std::int64_t num_groups = 1;  // of neighbouring experts; experts are picked from the best `top_groups` alone
  std::int64_t top_groups = 1;
};

// What an expert computes from gate and up instead of act(gate) * up: (u + 1) * g * sigmoid(alpha * g), where
// g = min(gate, limit), and u is up clamped to [-limit, limit]. Value.
struct ClampedGate {
  double alpha = 0.0;
  double limit = 0.0;
};

// What families' mixtures of experts differ in. Value.
struct MoeOptions {
  Routing routing = {};
  RouterOptions router = {};
  std::string router_name = "gate";
  ExpertOptions experts = {};  // MixtureOfExperts fills in the sizes, from the configuration
  std::optional<ClampedGate> clamped_gate = {};
  std::string shared_name = {};  // "shared_expert"; empty: the family has none
  bool shared_gate = false;  // shared_expert_gate: a number for each token that multiplies the shared expert's output
  std::string other_name = {};  // another name that checkpoints have for the whole block; empty: there is none
};

// A router, experts and, if family and configuration have one, a shared expert. Its output is the sum of what the
// picked experts and the shared one make of a token. If the configuration has a moe_latent_size, experts take and give
// vectors of that size: "fc1_latent_proj" projects to it, "fc2_latent_proj" back. Resource, as every Module.
class LAYERCAST_PUBLIC MixtureOfExperts final : public Module {
 public:
  // The numbers in `options.routing` that are the configuration's are taken from `moe`.
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

// Makes the feed-forward part of layer number `layer`: a MixtureOfExperts, or a GatedMlp if `moe` says that it is
// dense.
LAYERCAST_PUBLIC std::unique_ptr<Module> MakeFeedForward(const LayerContext& context, const ModelConfig& config,
                                                         const MoeConfig& moe, std::int64_t layer,
                                                         const MoeOptions& options);

}  // namespace layercast
