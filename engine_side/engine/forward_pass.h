// What an engine's forward pass offers, whatever it computes with: sequences go on by tokens, and give logits. Decoder
// computes on the CPU, GraphDecoder (torch/graph_decoder.h) by a decode graph. Torch-free.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "layercast/captured_buffers.h"
#include "layercast/model/module.h"
#include "layercast/parallel.h"

namespace layercast {

// Tokens that a sequence goes on with: its prompt at first, then the token that was picked. Value; tokens borrowed.
struct SequenceStep {
  std::uint64_t sequence = 0;
  std::span<const std::int32_t> tokens;
  bool all_logits = false;  // of every token, instead of the last one alone
};

// fp32, not rounded, over the whole vocabulary without padding; the same bits on every rank. Rows are those of the
// steps, in order. Of a pipeline the last stage has them, the others get no rows. Value.
struct Logits {
  std::size_t vocab_size = 0;
  std::vector<float> values;

  std::size_t rows() const { return vocab_size == 0 ? 0 : values.size() / vocab_size; }
  std::span<const float> row(std::size_t index) const {
    return std::span(values).subspan(index * vocab_size, vocab_size);
  }
};

// Resource; one thread only. All ranks make the same calls in the same order. Between two calls somebody may rewrite
// the captured buffers: the next one reads what is there then.
class ForwardPass {
 public:
  virtual ~ForwardPass() = default;

  // A sequence starts with its first step. Throws kInvalidArgument (a token that is none, no tokens) and
  // kResourceExhausted (longer than the model allows, more sequences than there is room for), naming the sequence,
  // before anything has changed.
  virtual Logits Forward(std::span<const SequenceStep> steps) = 0;

  virtual void Drop(std::uint64_t sequence) = 0;
  virtual void DropAll() = 0;                                    // the KV-cache policy "flush"
  virtual std::size_t Length(std::uint64_t sequence) const = 0;  // 0 for one that is not there
};

// Makes the pass of a model over its buffers. They outlive it, the model need not.
using MakeForwardPass = std::function<std::unique_ptr<ForwardPass>(const Module& model, const ParallelConfig& parallel,
                                                                   std::span<const CapturedBuffer> buffers)>;

}  // namespace layercast
