// Forward passes by a decode graph, for an engine on a GPU. Each sequence has a slot of the graph's cache. A call's
// tokens go through the graph in steps of as many rows as the graph has. Torch-free header.
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
  // The arguments are DecodeGraph's. Holds up to shape.slots sequences at once.
  GraphDecoder(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
               RopeFunction make_rope, const StepShape& shape, const AdapterSlots* adapters = nullptr);

  // See ForwardPass. The last bits of a sequence's logits may depend on the other steps (docs/engine.md).
  Logits Forward(std::span<const SequenceStep> steps) override;
  void Drop(std::uint64_t sequence) override;
  void DropAll() override;
  std::size_t Length(std::uint64_t sequence) const override { return lengths_.Length(sequence); }
  std::uint64_t times_queued() const { return graph_.times_queued(); }  // see DecodeGraph

 private:
  // A row for the graph, and where its logits go.
  struct Row {
    DecodeRow row;
    std::size_t turn = 0;               // rows of one turn may share a step; turns go in order
    std::optional<std::size_t> logits;  // their row in the result; nullopt: not wanted
  };

  void CheckRoom(std::span<const SequenceStep> steps) const;
  // The rows that compute `steps`, by turn, and within a turn in the order of the steps.
  std::vector<Row> RowsOf(std::span<const SequenceStep> steps);
  void Run(std::span<const Row> rows, Logits& logits);
  std::int64_t SlotOf(std::uint64_t sequence);

  DecodeGraph graph_;
  SequenceLengths lengths_;
  std::vector<std::int64_t> free_slots_;
  std::unordered_map<std::uint64_t, std::int64_t> slots_;
};

}  // namespace layercast
