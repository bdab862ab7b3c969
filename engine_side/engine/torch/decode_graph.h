// The decode step as engines run it. If the weights are on a GPU, it is captured once in a CUDA graph and then
// replayed; if they are in host memory, its operations are run one by one. Torch-free header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "engine_side/engine/forward_pass.h"
#include "engine_side/engine/rotary_table.h"
#include "engine_side/engine/torch/tensors/decode_rows.h"
#include "layercast/captured_buffers.h"
#include "layercast/parallel.h"

namespace layercast {

class Module;

// Resource; one thread only. Between two runs the captured buffers and the adapter slots may be rewritten, on any
// stream that has finished when the next run begins: the run reads what they hold then. No address of weights, factors,
// inputs, cache or logits ever changes.
class DecodeGraph {
 public:
  // The arguments are DecodeStep's. On a GPU the constructor captures the graph; the steps that it runs to warm up
  // touch no slot. In mode kEager every run queues the step's operations anew, on a GPU too; tests compare replays with
  // that.
  enum class Mode : std::uint8_t { kReplay, kEager };
  DecodeGraph(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
              RopeFunction make_rope, const StepShape& shape, Mode mode = Mode::kReplay,
              const AdapterSlots* adapters = nullptr);
  ~DecodeGraph();

  // Runs one step and returns the logits of each row, after waiting for them. Throws as DecodeStep::Put does.
  Logits Run(std::span<const DecodeRow> rows);

  const StepShape& shape() const;  // max_tokens is at most the model's own limit
  std::size_t vocab_size() const;
  bool is_recurrent() const;  // if so, a step has at most one row per slot
  // How often the host has queued the step's operations, which a replay does not do.
  std::uint64_t times_queued() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
