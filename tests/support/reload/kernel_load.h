// Takes kernel tensors into a rig's staged copy, through the pipeline, as the stager does.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine_side/reload/sources/kernel_taker.h"
#include "tests/support/reload/rig.h"

namespace layercast::testing {

// Resource; one thread only.
class PipelineSink final : public FetchSink {
 public:
  PipelineSink(ReloadPipeline& pipeline, const PlannedSchedule& planned) : pipeline_(pipeline), planned_(planned) {}
  void OnTensor(std::uint32_t /*tensor*/, float /*amax*/, const Digest& /*digest*/) override { ++tensors_; }
  void OnAxisAmax(std::uint32_t /*tensor*/, std::span<const float> /*amax*/) override {}
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override {
    const std::uint32_t first = planned_.schedule.chunks()[chunk].first_region;
    for (std::size_t i = 0; i < regions.size(); ++i) pipeline_.Accept(planned_.pieces[first + i], regions[i]);
  }
  std::size_t tensors() const { return tensors_; }

 private:
  ReloadPipeline& pipeline_;
  const PlannedSchedule& planned_;
  std::size_t tensors_ = 0;
};

// Returns how many tensors there were. Throws what a reload throws.
inline std::size_t LoadKernelTensors(Rig& rig, const KernelLayout& layout, const LayerRecipes& recipes,
                                     WeightsIterator& weights) {
  const std::vector<TensorSpec> specs = layercast::SpecsOf(layout);
  const Manifest manifest = KernelManifest("k", specs, layout);
  const PreparedLayout prepared(LoadPlan::OfKernelTensors(*rig.model, manifest, specs), manifest, layout, recipes,
                                4U << 20);
  ReloadPipeline pipeline({.plan = prepared.plan,
                           .manifest = manifest,
                           .layout = prepared.kernel,
                           .recipes = recipes,
                           .sink = rig.staging,
                           .work = rig.work,
                           .pool = rig.pool,
                           .failpoints = rig.failpoints},
                          prepared.stream.pieces);
  PipelineSink sink(pipeline, prepared.stream);
  KernelTaker taker({manifest, prepared, prepared.stream.schedule, sink}, layout, LoadPlan::WithoutTensors(*rig.model),
                    recipes, rig.host, rig.pool);
  while (const std::optional<NamedTensor> tensor = weights.Next()) taker.Take(*tensor);
  taker.Finish();
  pipeline.Finish();
  return sink.tensors();
}

}  // namespace layercast::testing
