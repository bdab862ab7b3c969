// A checkpoint on disk, some of whose layers may be quantized already, in the form in which the module tree takes it.
// If a layer cannot be served as it is, its tensors are replaced by others, which are made when their turn comes
// (engine_side/quant/RECIPES.md). Used by the source of a path.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine_side/reload/prequantized/quantized_layers.h"
#include "layercast/memory.h"
#include "layercast/weights_iterator.h"
#include "src/base/threads/worker_pool.h"
#include "src/checkpoint/formats/checkpoint.h"

namespace layercast {

// Resource; one thread at a time. It must outlive its iterators. The memory and the pool must outlive it and the
// tensors that it gives.
class QuantizedCheckpoint {
 public:
  // Puts `model` into the form that takes this checkpoint (see TakeQuantizedLayers). Throws what that and
  // Checkpoint::CheckHeads throw, and if scales cannot be read because of their dtype or shape. `memory` is for the
  // tensors that are made, each for as long as somebody holds it.
  QuantizedCheckpoint(Checkpoint checkpoint, Module& model, const QuantizationConfig& quantization,
                      MemoryResource& memory, WorkerPool& pool);
  QuantizedCheckpoint(const QuantizedCheckpoint&) = delete;
  QuantizedCheckpoint& operator=(const QuantizedCheckpoint&) = delete;

  const std::vector<TensorSpec>& specs() const { return specs_; }
  std::uint64_t total_bytes() const;
  // Yields the tensors that `order` lists, as indices into specs(). If a layer's scales hold wrong values, that is
  // thrown here.
  std::unique_ptr<WeightsIterator> Weights(std::vector<std::uint32_t> order) const;

 private:
  // Where a tensor comes from: it is made from others, or it is the checkpoint's own tensor with this index.
  using Maker = std::function<void(std::byte* values)>;
  struct Origin {
    Maker make;  // null if the tensor is the checkpoint's own
    std::uint32_t index = 0;
  };

  void AddMade(TensorSpec spec, Maker make);
  void AddDequantized(const QuantizedLayer& layer);
  std::optional<std::uint32_t> ScaleForAll(const QuantizedLayer& layer, const QuantizedLayer::Part& part) const;
  void AddScaleOfEach(const QuantizedLayer& layer, const QuantizedLayer::Part& part, std::uint32_t for_all);
  void AddScalesAs(TensorSpec spec, const QuantizedLayer& layer, const QuantizedLayer::Part& part);
  void AddNumber(std::string name, std::function<float()> make);
  NamedTensor Make(std::uint32_t index) const;
  void Dequantized(const QuantizedLayer& layer, const QuantizedLayer::Part& part, DType dtype, std::byte* values) const;

  Checkpoint checkpoint_;
  MemoryResource& memory_;
  WorkerPool& pool_;
  const QuantizedTensors quantized_;
  std::vector<TensorSpec> specs_;
  std::vector<Origin> origins_;  // by index in specs_
};

}  // namespace layercast
