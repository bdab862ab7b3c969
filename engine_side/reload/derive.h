// Between quantize and the sink's Close: what a layer computes from its own parameters, once all of them are there. It
// reads what the engine will serve of them, from the sink, so it is the same by whatever way they came. Where the bytes
// lie it is made; but a host program's own function (DerivedTensor::Compute) has its sources brought to the host.
#pragma once

#include <span>

#include "engine_side/reload/full_precision.h"
#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/layer_recipes.h"
#include "engine_side/reload/layer_sink.h"
#include "engine_side/reload/stage_work.h"

namespace layercast {

// Makes one derived tensor of its layer's parameters, by `work`, in `derived`.
void Derive(const DerivedTensor& tensor, FullPrecision& parameters, StageWork& work, std::span<std::byte> derived);

// Resource; one thread only. What it borrows outlives it.
class DeriveStage {
 public:
  DeriveStage(const LoadPlan& plan, const KernelLayout& layout, const LayerRecipes& recipes, const LayerSink& sink,
              StageWork& work)
      : plan_(plan), layout_(layout), recipes_(recipes), sink_(sink), work_(work) {}

  // Every parameter of the layer is in the sink, where the layer is open. Where a NaN or infinity comes of them, that
  // is thrown as StageWork::CheckDerived says.
  void Run(const PlannedLayer& layer) const;

 private:
  const LoadPlan& plan_;
  const KernelLayout& layout_;
  const LayerRecipes& recipes_;
  const LayerSink& sink_;
  StageWork& work_;
};

}  // namespace layercast
