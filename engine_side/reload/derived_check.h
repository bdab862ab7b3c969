// Kernel-format input brings what derives from parameters along: whether that is what they make. Used by the loader of
// such input.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/reload/host_work.h"
#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/layer_recipes.h"
#include "layercast/memory.h"

namespace layercast {

// Holds the tensors of a layer that something derives from until all of them came: one such layer's, where they come
// layer by layer. Resource; one thread only. What it borrows outlives it.
class DerivedCheck {
 public:
  // `layout` is of `plan`. `memory`: the host's.
  DerivedCheck(const LoadPlan& plan, const KernelLayout& layout, const LayerRecipes& recipes, MemoryResource& memory,
               WorkerPool& pool);

  // Each of the layout's tensors once, in any order. Throws kCorrupt, naming a derived tensor and the byte, where it is
  // another than its layer's parameters make.
  void Take(const KernelTensor& tensor, std::span<const std::byte> bytes);

 private:
  struct Layer {
    const PlannedLayer* planned;
    std::span<const KernelTensor> tensors;
    std::vector<Buffer> copies;  // of each that came
    std::size_t missing;
  };
  void Check(const Layer& layer);

  const LoadPlan& plan_;
  const KernelLayout& layout_;
  const LayerRecipes recipes_;
  MemoryResource& memory_;
  HostWork work_;
  std::map<std::size_t, Layer> layers_;  // that have derived tensors, by the place of their first one in the layout
};

}  // namespace layercast
