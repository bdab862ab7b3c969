// Mamba-2's mixer: a causal convolution, a selective scan with a state for each sequence, a gated norm. Made by
// MakeBlock.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine_side/engine/cpu/blocks/block.h"
#include "engine_side/engine/cpu/blocks/causal_conv.h"
#include "engine_side/engine/cpu/blocks/sequence_states.h"

namespace layercast {

// Resource; one thread only.
class MambaBlock final : public Block {
 public:
  MambaBlock(MambaDescription description, const BlockContext& context);
  void Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) override;
  void Drop(std::uint64_t sequence) override { states_.Drop(sequence); }
  void DropAll() override { states_.DropAll(); }

 private:
  // What a sequence's next token needs of the tokens before it.
  struct State {
    std::vector<float> window;  // see CausalConv
    std::vector<float> scan;    // [num_heads, head_dim, state_size]
  };
  // The small weights, read anew in each pass.
  struct Values {
    CausalConv::Values conv;
    std::vector<float> a, d, dt_bias;  // indexed by head
    std::vector<float> norm;
  };

  Values ReadValues() const;
  State FreshState() const;
  void Scan(const Values& values, std::span<const float> projected, std::vector<float>& state,
            std::span<float> out) const;
  void NormalizeGated(std::span<const float> factors);

  const MambaDescription description_;
  Collective& collective_;
  DType dtype_;
  MambaSizes sizes_;
  CausalConv conv_;
  SequenceStates<State> states_;

  Activations projected_, scanned_;  // scratch
};

}  // namespace layercast
