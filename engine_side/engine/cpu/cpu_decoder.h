// One rank's forward pass of a decoder-only model on the CPU. It reads weights through captured addresses, meets its
// peers in the collective, and takes over the residual stream from the pipeline stage before it. A description that is
// made of the module tree says what is computed; blocks do the work of the layers. The built-in engine is this plus the
// memory of the weights. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine_side/engine/blocks/decoder_description.h"
#include "engine_side/engine/cpu/blocks/block.h"
#include "engine_side/engine/forward_pass.h"
#include "engine_side/engine/ranks/peers.h"
#include "engine_side/engine/rotary_table.h"
#include "engine_side/engine/sequence_lengths.h"
#include "layercast/captured_buffers.h"
#include "layercast/parallel.h"

namespace layercast {

// Resource; one thread only.
class Decoder final : public ForwardPass {
 public:
  // `model` is a DecoderForCausalLM and is needed only during this call; the buffers' memory, the peers and the adapter
  // slots (null: none) must outlive the decoder. `max_tokens` is the greatest length of a sequence, if that is less
  // than the model's own. Throws kUnsupported, naming what it cannot compute, and as CapturedWeights does.
  Decoder(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
          const Peers& peers, RopeFunction make_rope, std::optional<std::size_t> max_tokens = std::nullopt,
          const AdapterSlots* adapters = nullptr);
  ~Decoder() override;

  // See ForwardPass. A sequence's logits depend neither on the other steps nor on how its own tokens were cut into
  // steps.
  Logits Forward(std::span<const SequenceStep> steps) override;
  void Drop(std::uint64_t sequence) override;
  void DropAll() override;
  std::size_t Length(std::uint64_t sequence) const override { return lengths_.Length(sequence); }

 private:
  struct Step {
    NormOperand norm;
    std::unique_ptr<Block> block;
    std::optional<NormOperand> post_norm;
  };

  Decoder(const DecoderForCausalLM& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
          const Peers& peers, RopeFunction make_rope, std::optional<std::size_t> max_tokens,
          const AdapterSlots* adapters);
  void Pass(std::span<const TokenRow> rows, Logits& logits);
  void Embed(std::span<const TokenRow> rows);
  void Take(Step& step, std::span<const TokenRow> rows);
  void AppendLogits(std::span<const TokenRow> rows, Logits& logits);
  Activations ComputeHead(std::span<const TokenRow> rows, const Activations& hidden);

  const Peers peers_;
  bool is_first_stage_;
  SequenceLengths lengths_;
  DecoderDescription description_;  // its steps are steps_
  std::vector<Step> steps_;

  Activations hidden_;                    // the residual stream
  Activations rounded_, normed_, added_;  // scratch
};

}  // namespace layercast
