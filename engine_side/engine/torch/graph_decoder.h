// Forward passes by a decode graph: what an engine on a GPU runs. Each sequence has a slot of the graph's cache; what
// is asked for at once goes through the graph in steps of as many rows as it has. Torch-free header.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine_side/engine/forward_pass.h"
#include "engine_side/engine/sequence_lengths.h"
#include "engine_side/engine/torch/decode_graph.h"

namespace layercast {

// Resource; one thread only.
class GraphDecoder final : public ForwardPass {
 public:
  // As DecodeGraph's; shape.slots sequences at once.
  GraphDecoder(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
               RopeFunction make_rope, const StepShape& shape);

  // A sequence's logits may depend on the other steps in their last bits (docs/engine.md).
  Logits Forward(std::span<const SequenceStep> steps) override;
  void Drop(std::uint64_t sequence) override;
  void DropAll() override;
  std::size_t Length(std::uint64_t sequence) const override { return lengths_.Length(sequence); }
  std::uint64_t times_queued() const { return graph_.times_queued(); }  // as DecodeGraph's

 private:
  // A row of the graph, and what is asked of it.
  struct Row {
    DecodeRow row;
    std::size_t turn = 0;               // rows of one turn may go through the graph at once, those of a later one after
    std::optional<std::size_t> logits;  // their place among those that were asked for
  };

  void CheckRoom(std::span<const SequenceStep> steps) const;
  // By turns, and else in the steps' order.
  std::vector<Row> RowsOf(std::span<const SequenceStep> steps);
  void Run(std::span<const Row> rows, Logits& logits);
  std::int64_t SlotOf(std::uint64_t sequence);

  DecodeGraph graph_;
  SequenceLengths lengths_;
  std::vector<std::int64_t> free_slots_;
  std::unordered_map<std::uint64_t, std::int64_t> slots_;
};

}  // namespace layercast
