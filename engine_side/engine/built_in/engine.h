// The built-in engine: one rank's weights in kernel format, held in torch tensors, and the forward pass that reads them
// at their captured addresses. Layercast gets its buffers the way it gets those of any other engine. Used by the group
// of ranks.
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
#include "layercast/tensor.h"

namespace layercast {

class Module;

// Resource; one thread only. All ranks of an engine make the same Forward calls in the same order.
class Engine {
 public:
  // Allocates every kernel tensor that the recipe makes of this rank's module tree, in the tree's order, and records
  // the addresses. The memory comes from `memory` with the contents that it has: a file that outlives a rank brings
  // back what the rank served. Without `memory` the tensors are zero. `peers` and `memory` must outlive the engine; the
  // tree and the recipes need not. Throws kUnsupported for a model that the forward pass cannot compute.
  Engine(const Module& model, const ParallelConfig& parallel, const LayerRecipes& recipes, const Peers& peers,
         MemoryResource& memory);
  Engine(const Module& model, const ParallelConfig& parallel, const LayerRecipes& recipes, const Peers& peers);
  // Allocates the tensors in torch's memory on `device`, all zero, and has `make` make the forward pass. Throws
  // kUnsupported if there is no such device, and kResourceExhausted, naming the tensor, if the device has no room for
  // one.
  Engine(const Module& model, const ParallelConfig& parallel, const LayerRecipes& recipes, const Device& device,
         const MakeForwardPass& make);
  ~Engine();

  // The tensors' current names, addresses, dtypes, shapes and strides. Asking again proves that none has moved.
  std::vector<CapturedBuffer> Buffers() const;
  // The tensors, adopted as captured buffers. The engine must outlive the result.
  CapturedBuffers Capture() const;

  // See ForwardPass.
  Logits Forward(std::span<const SequenceStep> steps) { return pass_->Forward(steps); }
  void Drop(std::uint64_t sequence) { pass_->Drop(sequence); }
  void DropAll() { pass_->DropAll(); }
  std::size_t Length(std::uint64_t sequence) const { return pass_->Length(sequence); }

 private:
  struct Tensors;  // keeps torch out of this header
  Engine(std::unique_ptr<Tensors> tensors, const Module& model, const ParallelConfig& parallel,
         const MakeForwardPass& make);

  std::unique_ptr<Tensors> tensors_;
  std::unique_ptr<ForwardPass> pass_;
};

}  // namespace layercast
