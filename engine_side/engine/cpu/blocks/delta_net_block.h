// A gated delta net. After a causal convolution, each sequence and value head has a state: a matrix from keys to
// values, which decays and is corrected with every token. The output is normalized and gated. Made by MakeBlock.
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
class DeltaNetBlock final : public Block {
 public:
  DeltaNetBlock(DeltaNetDescription description, const BlockContext& context);
  void Forward(std::span<const TokenRow> rows, const Activations& in, Activations& out) override;
  void Drop(std::uint64_t sequence) override { states_.Drop(sequence); }
  void DropAll() override { states_.DropAll(); }

 private:
  // What a sequence's next token needs of the tokens before it.
  struct State {
    std::vector<float> window;  // see CausalConv
    std::vector<float> memory;  // [num_value_heads, key_head_dim, value_head_dim]
  };
  // The small weights, read anew in each pass.
  struct Values {
    CausalConv::Values conv;
    std::vector<float> a, dt_bias;  // indexed by value head
    std::vector<float> norm;
  };

  Values ReadValues() const;
  State FreshState() const;
  // Computes one token: updates `state`, and sets `out`, from the token's projections, whose parts come one after
  // another. Overwrites the projections.
  void Step(const Values& values, std::span<float> qkvz, std::span<float> ba, State& state, std::span<float> out);
  void NormalizeKeys(std::span<float> queries, std::span<float> keys) const;
  void UpdateHead(const float* query, const float* key, std::span<const float> value, float decay, float beta,
                  float* memory, std::span<float> out);
  void NormalizeAndGate(const Values& values, std::span<float> gates, std::span<float> out) const;

  const DeltaNetDescription description_;
  Collective& collective_;
  DType dtype_;
  DeltaNetSizes sizes_;
  CausalConv conv_;
  SequenceStates<State> states_;

  Activations qkvz_, ba_, mixed_;  // scratch
  std::vector<float> correction_;
};

}  // namespace layercast
