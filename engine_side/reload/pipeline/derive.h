// What a layer computes from its own parameters, once all of them are there: between quantize and the sink's Close. It
// reads from the sink what the engine will serve, so the result does not depend on how the parameters came. It is
// computed where the bytes lie, except by a host program's own function (DerivedTensor::Compute), whose sources are
// copied to the host. Used by the pipeline and, for kernel-format input, by DerivedCheck.
#pragma once

#include <span>

#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_recipes.h"
#include "engine_side/reload/layout/layer_sink.h"
#include "engine_side/reload/work/full_precision.h"
#include "engine_side/reload/work/stage_work.h"

namespace layercast {

// Makes one derived tensor from its layer's parameters, using `work`, and writes it to `derived`.
void Derive(const DerivedTensor& tensor, FullPrecision& parameters, StageWork& work, std::span<std::byte> derived);

// Resource; one thread only. What it borrows outlives it.
class DeriveStage {
 public:
  DeriveStage(const LoadPlan& plan, const KernelLayout& layout, const LayerRecipes& recipes, const LayerSink& sink,
              StageWork& work)
      : plan_(plan), layout_(layout), recipes_(recipes), sink_(sink), work_(work) {}

  // Makes the derived tensors of a layer. Every parameter of the layer must be in the sink, in which the layer is open.
  // A NaN or infinity in a derived tensor is thrown as StageWork::CheckDerived says.
  void Run(const PlannedLayer& layer) const;

 private:
  const LoadPlan& plan_;
  const KernelLayout& layout_;
  const LayerRecipes& recipes_;
  const LayerSink& sink_;
  StageWork& work_;
};

}  // namespace layercast
