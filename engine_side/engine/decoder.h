// One rank's forward pass of a decoder-only model on CPU: reads weights through captured addresses, meets its peers in
// the collective, and goes on from what the pipeline stage before it has sent. What it computes is what the module tree
// says; the layers' work is done by blocks. The built-in engine is this and the memory of the weights. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine_side/engine/block.h"
#include "engine_side/engine/forward_pass.h"
#include "engine_side/engine/norm.h"
#include "engine_side/engine/peers.h"
#include "engine_side/engine/rotary_table.h"
#include "engine_side/engine/sequence_lengths.h"
#include "layercast/captured_buffers.h"
#include "layercast/model/decoder.h"
#include "layercast/model/embedding.h"
#include "layercast/parallel.h"

namespace layercast {

// Resource; one thread only.
class Decoder final : public ForwardPass {
 public:
  // `model`: a DecoderForCausalLM, needed only here. The buffers' memory and the peers outlive the decoder.
  // `max_tokens`: a sequence's greatest length, if less than the model's own. Throws kUnsupported naming what it cannot
  // compute, and as CapturedWeights does.
  Decoder(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
          const Peers& peers, RopeFunction make_rope, std::optional<std::size_t> max_tokens = std::nullopt);
  ~Decoder() override;

  // A sequence's logits do not depend on the other steps, nor on how its tokens were cut into steps.
  Logits Forward(std::span<const SequenceStep> steps) override;
  void Drop(std::uint64_t sequence) override;
  void DropAll() override;
  std::size_t Length(std::uint64_t sequence) const override { return lengths_.Length(sequence); }

 private:
  // Before the layers, and behind them.
  struct Embedding {
    WeightView rows;
    VocabRange range;  // which of the vocabulary's rows this rank has
    float scale;
  };
  struct Head {
    Norm norm;
    WeightView rows;  // the embedding again when they are tied
  };
  // hidden += post_norm(block(norm(hidden))).
  struct Step {
    Norm norm;
    std::unique_ptr<Block> block;
    std::optional<Norm> post_norm;
  };

  Decoder(const DecoderForCausalLM& model, const ParallelConfig& parallel, CapturedWeights weights, const Peers& peers,
          RopeFunction make_rope, std::optional<std::size_t> max_tokens);
  void FindEnds(const DecoderForCausalLM& model, CapturedWeights& weights);
  void AddSteps(const Module& layer, const std::string& path, const BlockContext& context);
  void Pass(std::span<const TokenRow> rows, Logits& logits);
  void Embed(std::span<const TokenRow> rows);
  void Take(Step& step, std::span<const TokenRow> rows);
  void AppendLogits(std::span<const TokenRow> rows, Logits& logits);

  const Peers peers_;
  DType dtype_, residual_dtype_;
  std::size_t hidden_size_, vocab_size_;
  float logit_softcap_;
  RotaryTables rotary_;
  bool is_first_stage_;
  std::optional<Embedding> embedding_;  // where this rank holds it, which the last stage may do too
  std::vector<Step> steps_;
  std::optional<Head> head_;  // of the last stage
  SequenceLengths lengths_;

  Activations hidden_;                    // the residual stream
  Activations rounded_, normed_, added_;  // scratch
};

}  // namespace layercast
