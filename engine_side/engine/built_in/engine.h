// The built-in engine: one rank's weights in kernel format, in memory that it is given, and the forward pass that reads
// them at their captured addresses. Layercast gets its buffers the way it gets those of any other engine. Used by the
// process of a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine_side/engine/forward_pass.h"
#include "engine_side/engine/ranks/peers.h"
#include "engine_side/reload/layout/layer_recipes.h"
#include "layercast/captured_buffers.h"
#include "layercast/memory.h"
#include "layercast/parallel.h"

namespace layercast {

class Module;

// Resource; one thread only. All ranks of an engine make the same Forward calls in the same order.
class Engine {
 public:
  // Allocates every kernel tensor that the recipe makes of this rank's module tree, in the tree's order, and records
  // the addresses. The memory comes from `memory` with the contents that it has: a file that outlives a rank brings
  // back what the rank served. `make` makes the forward pass, where the memory is, with the slots that its steps may
  // name (null: none). `memory` and the slots must outlive the engine; the tree and the recipes need not. Throws
  // kResourceExhausted, naming the tensor, if there is no memory for it, and kUnsupported for a model that the forward
  // pass cannot compute.
  Engine(const Module& model, const ParallelConfig& parallel, const LayerRecipes& recipes, MemoryResource& memory,
         const MakeForwardPass& make, const AdapterSlots* adapters = nullptr);
  // Computes on the CPU, in host memory, together with `peers`, which must outlive the engine.
  Engine(const Module& model, const ParallelConfig& parallel, const LayerRecipes& recipes, MemoryResource& memory,
         const Peers& peers, const AdapterSlots* adapters = nullptr);

  // The tensors' names, addresses, dtypes and shapes; they are contiguous.
  const std::vector<CapturedBuffer>& Buffers() const { return buffers_; }
  // The tensors, adopted as captured buffers. The engine must outlive the result.
  CapturedBuffers Capture() const { return CapturedBuffers::Adopt(buffers_); }

  // See ForwardPass.
  Logits Forward(std::span<const SequenceStep> steps) { return pass_->Forward(steps); }
  void Drop(std::uint64_t sequence) { pass_->Drop(sequence); }
  void DropAll() { pass_->DropAll(); }
  std::size_t Length(std::uint64_t sequence) const { return pass_->Length(sequence); }

 private:
  std::vector<Buffer> memory_;
  std::vector<CapturedBuffer> buffers_;  // of memory_
  std::unique_ptr<ForwardPass> pass_;
};

}  // namespace layercast
