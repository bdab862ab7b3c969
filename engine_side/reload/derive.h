// Between quantize and the sink's Close: what a layer computes from its own parameters, once all of them are there. It
// reads what the engine will serve of them, from the sink, so it is the same by whatever way they came. The host
// computes: a device's layer is brought to it first, once.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/layer_recipes.h"
#include "engine_side/reload/layer_sink.h"
#include "engine_side/reload/stage_work.h"
#include "layercast/memory.h"

namespace layercast {

// A layer's kernel tensors, where the host reads and writes them. Value; borrows.
struct HostTensors {
  std::span<const KernelTensor> tensors;
  std::vector<std::span<std::byte>> bytes;  // of each

  std::span<std::byte> BytesOf(const std::string& name) const;
};

// Computes what derives from a layer. What it borrows outlives it.
class Derivation {
 public:
  // `memory`: the host's, for sources that are served quantized, one layer's at a time.
  Derivation(const LoadPlan& plan, LayerRecipes recipes, MemoryResource& memory, WorkerPool& pool)
      : plan_(plan), recipes_(std::move(recipes)), memory_(memory), pool_(pool) {}

  // From the layer's parameters, as they lie in `host`, to `bytes`.
  void Compute(const PlannedLayer& layer, const DerivedTensor& derived, const HostTensors& host,
               std::span<std::byte> bytes) const;

 private:
  // The parameter in full precision: where it lies, or dequantized into `memory`.
  std::span<const std::byte> ReadSource(const PlannedLayer& layer, const TensorSpec& source, const HostTensors& host,
                                        Buffer& memory) const;
  const Recipe& RecipeOf(const PlannedLayer& layer, const std::string& weight) const;

  const LoadPlan& plan_;
  const LayerRecipes recipes_;
  MemoryResource& memory_;
  WorkerPool& pool_;
};

// Resource; one thread only. What it borrows outlives it.
class DeriveStage {
 public:
  // `memory`: as Derivation's.
  DeriveStage(const LoadPlan& plan, const KernelLayout& layout, const LayerRecipes& recipes, const LayerSink& sink,
              StageWork& work, MemoryResource& memory, WorkerPool& pool)
      : layout_(layout), sink_(sink), work_(work), pool_(pool), derivation_(plan, recipes, memory, pool) {}

  // Every parameter of the layer is in the sink, where the layer is open. Throws kCorrupt, naming layer and tensor,
  // where a NaN or infinity comes of them.
  void Run(const PlannedLayer& layer) const;

 private:
  void CheckFinite(const PlannedLayer& layer, const KernelTensor& tensor, const std::byte* bytes) const;

  const KernelLayout& layout_;
  const LayerSink& sink_;
  StageWork& work_;
  WorkerPool& pool_;
  const Derivation derivation_;
};

}  // namespace layercast
