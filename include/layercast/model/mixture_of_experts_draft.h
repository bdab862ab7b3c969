// How a token's experts are picked. Value.
struct Routing {
  enum class Score : std::uint8_t { kSoftmax, kSigmoid };
  Score score = Score::kSoftmax;
  std::int64_t top_k = 1;
  bool normalize = false;          // the weights of those that are picked add up to one
  double normalize_epsilon = 0.0;  // added to their sum
  double scale = 1.0;              // multiplies them then
  std::int64_t num_groups = 1;     // of neighbouring experts: only those of the best `top_groups` are picked
  std::int64_t top_groups = 1;
  bool fp32_logits = false;    // logits are not rounded to the model's dtype ...
  bool round_weights = false;  // ... and weights are
};

// Value.
struct MoeOptions {
  Routing routing;
  RouterOptions router;
  bool mixtral_names = false;  // see ExpertOptions
  std::string shared_name = "shared_expert";
  bool shared_gate = false;  // shared_expert_gate: what the shared expert's output is multiplied by
  std::string other_name;    // that checkpoints have for the whole block beside its own; empty: none
};

// gate, experts and, where the configuration has one, the shared expert: the sum of what the experts that the router
// picks, and the shared one, make of a token.
class LAYERCAST_PUBLIC MixtureOfExperts final : public Module {
 public:
  MixtureOfExperts(const LayerContext& context, const ModelConfig& config, const MoeConfig& moe,
                   const MoeOptions& options);
  std::span<const ShardName> shard_names() const override { return {&other_name_, other_name_.checkpoint_name.empty() ? 0U : 1U}; }

  const MoeOptions& options() const { return options_; }
  const FusedMoE& experts() const { return *experts_; }
  const std::string& hidden_act() const { return hidden_act_; }  // "silu"

 private:
  MoeOptions options_;
  ShardName other_name_;
  std::string hidden_act_;
  const FusedMoE* experts_ = nullptr;
};
