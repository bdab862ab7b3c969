// The dense feed-forward block: down(activation(up(x))). Made by MakeBlock.
#pragma once

#include <span>

#include "engine_side/engine/cpu/blocks/block.h"

namespace layercast {

// Sets `out` to the activation of `up_out`, the output of mlp.up, rounded to `dtype` after every operation. Used for
// experts too.
void ActivateUp(const MlpDescription& mlp, const Activations& up_out, DType dtype, Activations& out);

// Resource; one thread only.
class MlpBlock final : public Block {
 public:
  MlpBlock(MlpDescription description, const BlockContext& context);
  void Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) override;

 private:
  const MlpDescription description_;
  Collective& collective_;
  DType dtype_;
  Activations up_out_, activated_;  // scratch
};

}  // namespace layercast
