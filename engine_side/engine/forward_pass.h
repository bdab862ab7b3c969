// The interface of an engine's forward pass, whatever it computes with: sequences are extended by tokens and yield
// logits. Decoder computes on the CPU, GraphDecoder (torch/graph_decoder.h) by a decode graph. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "layercast/captured_buffers.h"
#include "layercast/parallel.h"

namespace layercast {

class AdapterSlots;
class Module;

// The tokens by which a sequence is extended: first its prompt, then each token that was picked. Value; tokens
// borrowed.
struct SequenceStep {
  std::uint64_t sequence = 0;
  std::span<const std::int32_t> tokens;
  bool all_logits = false;    // for every token, instead of only the last one
  std::int32_t adapter = -1;  // the adapter slot that the tokens are computed with; -1: the base alone
};

// Logits in fp32, not rounded, over the whole vocabulary without padding, with the same bits on every rank. The rows
// are in the order of the steps. In a pipeline only the last stage has rows; the others get none. Value.
struct Logits {
  std::size_t vocab_size = 0;
  std::vector<float> values;

  std::size_t rows() const { return vocab_size == 0 ? 0 : values.size() / vocab_size; }
  std::span<const float> row(std::size_t index) const {
    return std::span(values).subspan(index * vocab_size, vocab_size);
  }
};

// Resource; one thread only. All ranks make the same calls in the same order. Between two calls the captured buffers
// and the adapter slots may be rewritten: the next call reads what they hold then.
class ForwardPass {
 public:
  virtual ~ForwardPass() = default;

  // Extends the sequences by the steps; a sequence starts with its first step. Throws, naming the sequence and before
  // anything has changed: kInvalidArgument for an invalid token, no tokens or an adapter slot that is not there,
  // kResourceExhausted for a sequence that would exceed the model's length or for more sequences than there is room
  // for.
  virtual Logits Forward(std::span<const SequenceStep> steps) = 0;

  virtual void Drop(std::uint64_t sequence) = 0;
  virtual void DropAll() = 0;                                    // the KV-cache policy "flush"
  virtual std::size_t Length(std::uint64_t sequence) const = 0;  // 0 for an unknown sequence
};

// Makes a model's forward pass over its buffers, with adapters from `adapters` (null: none). Buffers and slots must
// outlive the pass; the model need not.
using MakeForwardPass =
    std::function<std::unique_ptr<ForwardPass>(const Module& model, const ParallelConfig& parallel,
                                               std::span<const CapturedBuffer> buffers, const AdapterSlots* adapters)>;

}  // namespace layercast
