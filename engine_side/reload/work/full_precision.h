// Gives a layer's parameters in full precision, made from its kernel tensors, wherever these lie. Derived tensors are
// computed from them, and so from what the engine serves.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_recipes.h"
#include "engine_side/reload/work/stage_work.h"
#include "layercast/memory.h"

namespace layercast {

// A layer's kernel tensors, and where a stage reads and writes them. Value; borrows the memory.
struct LayerTensors {
  std::span<const KernelTensor> tensors;
  std::vector<std::span<std::byte>> bytes;  // of each of `tensors`

  // The bytes of the tensor with this full name, which must be there.
  std::span<std::byte> BytesOf(const std::string& name) const;
  bool Has(const TensorSpec& spec) const;
};

// Resource; one thread only. What it borrows outlives it.
class FullPrecision {
 public:
  FullPrecision(const LoadPlan& plan, const LayerRecipes& recipes, StageWork& work, const PlannedLayer& layer,
                const LayerTensors& tensors)
      : plan_(plan), recipes_(recipes), work_(work), layer_(layer), tensors_(tensors) {}

  // The bytes of a parameter, which is named within its layer. If the layer holds it in full precision, they are where
  // it lies; otherwise it is dequantized when it is first asked for, and kept until this object is destroyed.
  std::span<std::byte> Of(const TensorSpec& parameter);

 private:
  void Dequantize(const TensorSpec& whole, std::byte* values) const;
  const Recipe& RecipeOf(const std::string& weight) const;

  const LoadPlan& plan_;
  const LayerRecipes& recipes_;
  StageWork& work_;
  const PlannedLayer& layer_;
  const LayerTensors& tensors_;
  std::map<std::string, Buffer> dequantized_;  // by full name
};

}  // namespace layercast
