// A checkpoint on disk whose layers may be quantized already, as the module tree takes it: the tensors of a layer that
// cannot be served as they are replaced by others, made when their turn comes (engine_side/quant/RECIPES.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "engine_side/reload/quantized_layers.h"
#include "layercast/memory.h"
#include "layercast/weights_iterator.h"
#include "src/base/worker_pool.h"
#include "src/checkpoint/checkpoint.h"

namespace layercast {

// Resource; one thread at a time. It outlives its iterators; the memory and the pool outlive it and what they give.
class QuantizedCheckpoint {
 public:
  // Puts `model` into the form that takes it: see TakeQuantizedLayers. Throws as that and Checkpoint::CheckHeads do,
  // and on scales that could not be read. `memory`: for each tensor that is made, while somebody holds it.
  QuantizedCheckpoint(Checkpoint checkpoint, Module& model, const QuantizationConfig& quantization,
                      MemoryResource& memory, WorkerPool& pool);
  QuantizedCheckpoint(const QuantizedCheckpoint&) = delete;
  QuantizedCheckpoint& operator=(const QuantizedCheckpoint&) = delete;

  const std::vector<TensorSpec>& specs() const { return specs_; }
  std::uint64_t total_bytes() const;
  // The tensors that `order` lists, indices into specs(). What is wrong with a layer's scales is thrown here too.
  std::unique_ptr<WeightsIterator> Weights(std::vector<std::uint32_t> order) const;

 private:
  // Where a tensor comes from: made of others, or the checkpoint's own of this index.
  using Maker = std::function<void(std::byte* values)>;
  struct Origin {
    Maker make;  // null: nothing is
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
  std::vector<Origin> origins_;  // of each of specs_
};

}  // namespace layercast
