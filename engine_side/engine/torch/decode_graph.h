// The decode step as engines run it: captured once in a CUDA graph and replayed afterwards, where the weights are on a
// GPU; step by step, where they are in host memory. Torch-free header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine_side/engine/forward_pass.h"
#include "engine_side/engine/rotary_table.h"
#include "engine_side/engine/torch/decode_rows.h"
#include "layercast/captured_buffers.h"
#include "layercast/model/module.h"
#include "layercast/parallel.h"

namespace layercast {

// Resource; one thread only. Between two runs somebody may rewrite the captured buffers, on any stream that is done
// when the run begins: it reads what is there then. No address of weights, inputs, cache or logits ever changes.
class DecodeGraph {
 public:
  // As DecodeStep's. On a GPU it captures here: the steps that warm up touch no slot.
  // kEager: every run queues the step's operations anew, also on a GPU, which is what a replay is held against.
  enum class Mode : std::uint8_t { kReplay, kEager };
  DecodeGraph(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
              RopeFunction make_rope, const StepShape& shape, Mode mode = Mode::kReplay);
  ~DecodeGraph();

  // The logits of each row, whole before it returns. Throws as DecodeStep::Put does.
  Logits Run(std::span<const DecodeRow> rows);

  const StepShape& shape() const;  // with the model's own limit, where none or a longer one was given
  std::size_t vocab_size() const;
  bool is_recurrent() const;  // a step then has one row of a slot at most
  // How often the host has gone through the step's operations: a replay does not.
  std::uint64_t times_queued() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
