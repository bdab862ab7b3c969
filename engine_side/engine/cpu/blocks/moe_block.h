// A mixture of experts: each token goes through the few experts that its router picks, and through the shared expert if
// there is one. A rank computes its own experts, or its part of each expert; the sum over ranks is the layer's output.
// Made by MakeBlock.
#pragma once

#include <optional>
#include <span>

#include "engine_side/engine/cpu/blocks/block.h"
#include "engine_side/engine/cpu/blocks/mlp_block.h"
#include "engine_side/engine/cpu/blocks/router.h"

namespace layercast {

// Resource; one thread only.
class MoeBlock final : public Block {
 public:
  MoeBlock(MoeDescription description, const BlockContext& context);
  void Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) override;

 private:
  void SumExperts(std::span<const TokenRow> rows, const RoutedTokens& routed, const Activations& in, Activations& out);
  void AddExpert(const MlpDescription& expert, std::span<const TokenRow> rows, std::span<const RoutedToken> tokens,
                 const Activations& in, Activations& out);
  void AddShared(std::span<const TokenRow> rows, const SlotGroups& groups, const Activations& in, Activations& out);

  const MoeDescription description_;
  Collective& collective_;
  DType dtype_;
  Router router_;
  std::optional<MlpBlock> shared_;

  Activations tokens_, up_out_, activated_, down_out_, latent_in_, latent_out_, shared_out_, scores_;  // scratch
};

}  // namespace layercast
