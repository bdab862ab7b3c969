// One rank's forward pass of a Llama-like model on CPU: reads weights through captured addresses, keeps a KV cache per
// sequence, meets its peers in the collective. The built-in engine is this and the memory of the weights. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "engine_side/engine/collective.h"
#include "engine_side/engine/decoder_config.h"
#include "engine_side/engine/decoder_weights.h"
#include "engine_side/engine/kernels.h"
#include "engine_side/engine/kv_cache.h"
#include "engine_side/engine/rotary_table.h"
#include "layercast/captured_buffers.h"
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
  // The buffers' memory and the collective outlive it. Throws as DecoderWeights::Find does.
  Decoder(DecoderConfig config, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
          Collective& collective);

  // A sequence starts with its first step. Its logits do not depend on the other steps, nor on how its tokens were cut
  // into steps. Throws kInvalidArgument (a token that is none, no tokens) and kResourceExhausted (longer than the model
  // allows), naming the sequence, before anything has changed.
  Logits Forward(std::span<const SequenceStep> steps);

  void Drop(std::uint64_t sequence) { cache_.Drop(sequence); }
  void DropAll() { cache_.Clear(); }  // the KV-cache policy "flush"
  std::size_t Length(std::uint64_t sequence) const { return cache_.Length(sequence); }
  const DecoderConfig& config() const { return config_; }

 private:
  // One token of this pass.
  struct Row {
    std::uint64_t sequence;
    std::size_t position;
    std::int32_t token;
    bool wants_logits;
  };

  void Check(std::span<const SequenceStep> steps) const;
  void Pass(std::span<const Row> rows, Logits& logits);
  void Embed(std::span<const Row> rows);
  void AttentionBlock(std::size_t layer, std::span<const Row> rows);
  void PrepareHeads(std::size_t layer, const Row& row, std::span<float> qkv);
  void AttendRow(std::size_t layer, const Row& row, std::span<const float> queries, std::span<float> out);
  void MlpBlock(std::size_t layer);
  void AppendLogits(std::span<const Row> rows, Logits& logits);

  void NormalizeRows(const Activations& from, const WeightView& norm, Activations& to);
  void ColumnParallel(const Activations& x, const LinearWeights& linear, Activations& y);  // y: this rank's part
  void RowParallel(const Activations& x, const LinearWeights& linear);                     // hidden_ += the whole
  void AddBias(const std::optional<WeightView>& bias, Activations& y);

  DecoderConfig config_;
  ParallelConfig parallel_;
  Collective& collective_;
  DecoderWeights weights_;
  std::size_t heads_, kv_heads_;  // this rank's
  KvCache cache_;
  RotaryTable rotary_;

  Activations hidden_;                                           // the residual stream
  Activations normed_, qkv_, attended_, gate_up_, gated_, sum_;  // scratch
  std::vector<float> q_norm_, k_norm_;                           // of the layer at hand; empty: none
  std::vector<float> scores_, query_, head_out_;                 // scratch
};

}  // namespace layercast
