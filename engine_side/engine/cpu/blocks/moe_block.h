// A mixture of experts: each token goes through the few experts that its router picks, and through the shared expert if
// there is one. A rank computes its own experts, or its part of each expert; the sum over ranks is the layer's output.
// Made by MakeBlock.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine_side/engine/block.h"
#include "engine_side/engine/cpu/kernels/activation.h"
#include "engine_side/engine/cpu/kernels/row_linear.h"
#include "engine_side/engine/router.h"
#include "layercast/model/mixture_of_experts.h"

namespace layercast {

// Resource; one thread only.
class MoeBlock final : public Block {
 public:
  MoeBlock(const MixtureOfExperts& moe, const std::string& path, const BlockContext& context);
  void Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) override;

 private:
  struct Expert {
    LinearWeights w13, w2;
  };

  void SumExperts(const RoutedTokens& routed, const Activations& in, Activations& out);
  void AddExpert(const Expert& expert, std::span<const RoutedToken> tokens, const Activations& in, Activations& out);
  // Sets activated_ to the activation of w13_: of gate and up, or of up alone, each `width` wide.
  void ActivateExpert(std::size_t width);
  void AddShared(std::span<const TokenRow> rows, const Activations& in, Activations& out);

  Collective& collective_;
  DType dtype_;
  Activation activation_;
  bool gated_;
  std::optional<ClampedGate> clamped_gate_;
  Router router_;
  LocalExperts local_;
  std::vector<Expert> experts_;    // those of this rank
  std::unique_ptr<Block> shared_;  // null: none
  std::optional<WeightView> shared_gate_;
  std::optional<LinearWeights> to_latent_, from_latent_;

  Activations tokens_, w13_, activated_, down_, latent_in_, latent_out_, shared_out_, shared_scores_;  // scratch
};

}  // namespace layercast
