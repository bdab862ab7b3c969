// One rank's forward pass of a decoder-only model on the CPU. It reads weights through captured addresses, meets its
// peers in the collective, and takes over the residual stream from the pipeline stage before it. The module tree says
// what is computed; blocks do the work of the layers. The built-in engine is this plus the memory of the weights.
// Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine_side/engine/block.h"
#include "engine_side/engine/cpu/blocks/row_norm.h"
#include "engine_side/engine/forward_pass.h"
#include "engine_side/engine/ranks/peers.h"
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
  // `model` is a DecoderForCausalLM and is needed only during this call; the buffers' memory and the peers must outlive
  // the decoder. `max_tokens` is the greatest length of a sequence, if that is less than the model's own. Throws
  // kUnsupported, naming what it cannot compute, and as CapturedWeights does.
  Decoder(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
          const Peers& peers, RopeFunction make_rope, std::optional<std::size_t> max_tokens = std::nullopt);
  ~Decoder() override;

  // See ForwardPass. A sequence's logits depend neither on the other steps nor on how its own tokens were cut into
  // steps.
  Logits Forward(std::span<const SequenceStep> steps) override;
  void Drop(std::uint64_t sequence) override;
  void DropAll() override;
  std::size_t Length(std::uint64_t sequence) const override { return lengths_.Length(sequence); }

 private:
  // What comes before the layers (Embedding) and after them (Head).
  struct Embedding {
    WeightView rows;
    VocabRange range;  // the rows of the vocabulary that this rank has
    float scale;
  };
  struct Head {
    Norm norm;
    WeightView rows;  // the embedding's rows if the two are tied
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
  std::optional<Embedding> embedding_;  // if this rank holds it; the last stage may hold it too
  std::vector<Step> steps_;
  std::optional<Head> head_;  // on the last stage only
  SequenceLengths lengths_;

  Activations hidden_;                    // the residual stream
  Activations rounded_, normed_, added_;  // scratch
};

}  // namespace layercast
