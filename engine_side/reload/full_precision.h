// A layer's parameters in full precision, wherever its kernel tensors lie: what derives from a layer is made of them,
// and so of what the engine serves.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/layer_recipes.h"
#include "engine_side/reload/stage_work.h"
#include "layercast/memory.h"

namespace layercast {

// A layer's kernel tensors, where a stage's work reads and writes them. Value; borrows.
struct LayerTensors {
  std::span<const KernelTensor> tensors;
  std::vector<std::span<std::byte>> bytes;  // of each

  // Of the tensor of that full name, which is there.
  std::span<std::byte> BytesOf(const std::string& name) const;
  bool Has(const TensorSpec& spec) const;
};

// Resource; one thread only. What it borrows outlives it.
class FullPrecision {
 public:
  FullPrecision(const LoadPlan& plan, const LayerRecipes& recipes, StageWork& work, const PlannedLayer& layer,
                const LayerTensors& tensors)
      : plan_(plan), recipes_(recipes), work_(work), layer_(layer), tensors_(tensors) {}

  // The parameter, named within its layer: where it lies, or dequantized when it is first asked for.
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
