// Between quantize and the sink's Close: what a layer computes from its own parameters, once all of them are there. It
// reads what the engine will serve of them, from the sink, so it is the same by whatever way they came.
#pragma once

#include <span>
#include <string>

#include "engine_side/quant/recipe.h"
#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/layer_sink.h"
#include "layercast/memory.h"

namespace layercast {

// Resource; one thread only. What it borrows outlives it.
class DeriveStage {
 public:
  // `memory`: for sources that are served quantized, one layer's at a time.
  DeriveStage(const KernelLayout& layout, const Recipe& recipe, const LayerSink& sink, MemoryResource& memory,
              WorkerPool& pool)
      : layout_(layout), recipe_(recipe), sink_(sink), memory_(memory), pool_(pool) {}

  // Every parameter of the layer is in the sink, where the layer is open. Throws kCorrupt, naming layer and tensor,
  // where a NaN or infinity comes of them.
  void Run(const PlannedLayer& layer) const;

 private:
  // The parameter in full precision: where it lies, or dequantized into `memory`.
  std::span<const std::byte> ReadSource(const PlannedLayer& layer, const TensorSpec& source, Buffer& memory) const;
  std::span<std::byte> BytesOf(const PlannedLayer& layer, const std::string& name) const;
  void CheckFinite(const PlannedLayer& layer, const KernelTensor& tensor) const;

  const KernelLayout& layout_;
  const Recipe& recipe_;
  const LayerSink& sink_;
  MemoryResource& memory_;
  WorkerPool& pool_;
};

}  // namespace layercast
