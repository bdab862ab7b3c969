// One rank's forward pass of a decoder-only model on CPU: reads weights through captured addresses, meets its peers in
// the collective. What it computes is what the module tree says; the layers' work is done by blocks. The built-in
// engine is this and the memory of the weights. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine_side/engine/block.h"
#include "engine_side/engine/collective.h"
#include "engine_side/engine/norm.h"
#include "engine_side/engine/rotary_table.h"
#include "layercast/captured_buffers.h"
#include "layercast/model/decoder.h"
#include "layercast/model/embedding.h"
#include "layercast/parallel.h"

namespace layercast {

// Tokens that a sequence goes on with: its prompt at first, then the token that was picked. Value; tokens borrowed.
struct SequenceStep {
  std::uint64_t sequence = 0;
  std::span<const std::int32_t> tokens;
  bool all_logits = false;  // of every token, instead of the last one alone
};

// fp32, not rounded, over the whole vocabulary without padding; the same bits on every rank. Rows are those of the
// steps, in order. Value.
struct Logits {
  std::size_t vocab_size = 0;
  std::vector<float> values;

  std::size_t rows() const { return vocab_size == 0 ? 0 : values.size() / vocab_size; }
  std::span<const float> row(std::size_t index) const {
    return std::span(values).subspan(index * vocab_size, vocab_size);
  }
};

// Resource; one thread only. All ranks make the same calls in the same order.
class Decoder {
 public:
  // `model`: a DecoderForCausalLM, needed only here. The buffers' memory and the collective outlive the decoder.
  // `max_tokens`: a sequence's greatest length, if less than the model's own. Throws kUnsupported naming what it cannot
  // compute, and as CapturedWeights does.
  Decoder(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
          Collective& collective, RopeFunction make_rope, std::optional<std::size_t> max_tokens = std::nullopt);
  ~Decoder();

  // A sequence starts with its first step. Its logits do not depend on the other steps, nor on how its tokens were cut
  // into steps. Throws kInvalidArgument (a token that is none, no tokens) and kResourceExhausted (longer than the model
  // allows), naming the sequence, before anything has changed.
  Logits Forward(std::span<const SequenceStep> steps);

  void Drop(std::uint64_t sequence);
  void DropAll();                                    // the KV-cache policy "flush"
  std::size_t Length(std::uint64_t sequence) const;  // 0 for one that is not there
  std::size_t vocab_size() const { return vocab_size_; }
  std::size_t max_tokens() const { return max_tokens_; }

 private:
  // hidden += post_norm(block(norm(hidden))).
  struct Step {
    Norm norm;
    std::unique_ptr<Block> block;
    std::optional<Norm> post_norm;
  };

  Decoder(const DecoderForCausalLM& model, const ParallelConfig& parallel, CapturedWeights weights,
          Collective& collective, RopeFunction make_rope, std::optional<std::size_t> max_tokens);
  void AddSteps(const Module& layer, const std::string& path, const BlockContext& context);
  void Check(std::span<const SequenceStep> steps) const;
  void Pass(std::span<const TokenRow> rows, Logits& logits);
  void Embed(std::span<const TokenRow> rows);
  void Take(Step& step, std::span<const TokenRow> rows);
  void AppendLogits(std::span<const TokenRow> rows, Logits& logits);

  Collective& collective_;
  DType dtype_, residual_dtype_;
  std::size_t hidden_size_, vocab_size_, max_tokens_;
  float embedding_scale_, logit_softcap_;
  RotaryTables rotary_;
  WeightView embedding_;
  VocabRange vocabulary_;  // of the embedding: which of its rows this rank has
  std::vector<Step> steps_;
  Norm final_norm_;
  WeightView lm_head_;  // the embedding again when they are tied
  std::unordered_map<std::uint64_t, std::size_t> lengths_;

  Activations hidden_;                    // the residual stream
  Activations rounded_, normed_, added_;  // scratch
};

}  // namespace layercast
