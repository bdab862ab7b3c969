// Kernel-format input includes the tensors that derive from parameters. This checks that they are what the parameters
// make. Used by KernelTaker.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_recipes.h"
#include "engine_side/reload/work/host_work.h"
#include "layercast/memory.h"

namespace layercast {

// Holds the tensors of each layer that has derived tensors until all of them came. If they come layer by layer, it
// holds one such layer at a time. Resource; one thread only. What it borrows must outlive it.
class DerivedCheck {
 public:
  // `layout` must be that of `plan`. `memory` must be host memory.
  DerivedCheck(const LoadPlan& plan, const KernelLayout& layout, const LayerRecipes& recipes, MemoryResource& memory,
               WorkerPool& pool);

  // Takes each of the layout's tensors once, in any order. Throws kCorrupt, naming a derived tensor and the byte, if it
  // differs from what its layer's parameters make.
  void Take(const KernelTensor& tensor, std::span<const std::byte> bytes);

 private:
  struct Layer {
    const PlannedLayer* planned;
    std::span<const KernelTensor> tensors;
    std::vector<Buffer> copies;  // of each of `tensors` that came
    std::size_t missing;
  };
  void Check(const Layer& layer);

  const LoadPlan& plan_;
  const KernelLayout& layout_;
  const LayerRecipes recipes_;
  MemoryResource& memory_;
  HostWork work_;
  std::map<std::size_t, Layer> layers_;  // by the layout's index of their first tensor
};

}  // namespace layercast
