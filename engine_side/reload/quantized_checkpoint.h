// Checkpoints that are quantized already. Layer by layer: codes and scales are served as they are where the recipe is
// that of their form and the rank's part can be cut out; parts of a fused layer that have one scale each are brought to
// the largest of them; the rest is refused, or dequantized and quantized anew if that is asked for.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine_side/quant/recipe.h"
#include "layercast/model/linear.h"
#include "layercast/weights_iterator.h"
#include "src/checkpoint/checkpoint.h"

namespace layercast {

// What is done to the tensors of one layer before the plan sees them.
struct QuantizedLayer {
  enum class Way : std::uint8_t { kAsTheyAre, kToLargestScale, kDequantize };
  struct Part {
    std::uint32_t weight = 0, scale = 0;  // indices of the tensors
  };

  LinearLayer* layer = nullptr;
  std::string path;
  Way way = Way::kAsTheyAre;
  std::vector<Part> parts;  // in the order of the fused weight
};

// Finds the layers whose weights are FP8 codes among `specs`, decides for each, and puts the tree into the form in
// which it takes them. Throws kInvalidArgument naming layer, tensor and numbers: a scale that is missing, a layer that
// config.json says nothing of, and, unless `requantize`, a recipe or a cut that does not fit.
std::vector<QuantizedLayer> TakeQuantizedLayers(Module& model, std::span<const TensorSpec> specs, const Recipe& recipe,
                                                bool requantize);

// A checkpoint as the tree takes it. Resource; the pool and the checkpoint's memory outlive its iterators.
class QuantizedCheckpoint {
 public:
  // Calls TakeQuantizedLayers. A checkpoint in full precision is handed on as it is.
  QuantizedCheckpoint(const Checkpoint& checkpoint, Module& model, const Recipe& recipe, bool requantize,
                      WorkerPool& pool);

  const std::vector<TensorSpec>& specs() const { return specs_; }
  // The tensors that `order` lists, indices into specs(), made when their turn comes.
  std::unique_ptr<WeightsIterator> Weights(std::vector<std::uint32_t> order) const;

 private:
  // Where a tensor comes from: the checkpoint's own (layer -1), or made of a layer's tensors.
  struct Origin {
    std::int64_t layer = -1;
    std::uint32_t index = 0;  // of the checkpoint's tensor, or of the layer's part
  };

  void AddMade(const QuantizedLayer& layer, std::int64_t index, std::vector<bool>& replaced);
  NamedTensor Make(std::uint32_t index) const;
  void Dequantized(const QuantizedLayer& layer, std::uint32_t part, std::byte* values) const;
  void AtLargestScale(const QuantizedLayer& layer, bool is_scale, std::byte* bytes) const;
  std::vector<float> ScalesOf(const QuantizedLayer::Part& part) const;

  Checkpoint checkpoint_;
  WorkerPool& pool_;
  std::vector<QuantizedLayer> layers_;
  std::vector<TensorSpec> specs_;
  std::vector<Origin> origins_;  // of each of specs_
};

}  // namespace layercast
