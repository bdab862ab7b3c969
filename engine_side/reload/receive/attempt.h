// One reload of one version: the pipeline, what feeds it, and what is known of the version in the end. Used by the
// stager, which has at most one at a time. Resource; one thread only.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <vector>

#include "engine_side/reload/layout/prepared_layout.h"
#include "engine_side/reload/pipeline/pipeline.h"
#include "engine_side/reload/sources/version_source.h"
#include "layercast/report.h"
#include "src/session/fetch/fetch_sink.h"

namespace layercast {

class ReloadAttempt final : public FetchSink {
 public:
  struct Environment {
    LayerRecipes recipes;
    LayerSink& sink;
    StageWork& work;
    WorkerPool& pool;
    FailPoints& failpoints;
    std::uint64_t buffer_limit;
    std::function<void()> say_came;  // called after each chunk
    std::stop_token stop;            // once requested, no chunk is taken
    NormNoise* noise = nullptr;      // PipelineParts'
    TraceRecorder* trace = nullptr;  // null: nobody wants a timeline
  };
  // `prepared` was made for the manifest's layout. `snapshot`: the version comes by the schedule for snapshots,
  // otherwise by that for streams. `direct`: layers may be processed directly.
  ReloadAttempt(Environment environment, std::shared_ptr<const PreparedLayout> prepared, Manifest manifest,
                bool snapshot, bool direct);

  // What a source is to bring, which it does by calling the FetchSink methods below.
  Wanted wanted() { return {manifest_, *prepared_, schedule().schedule, *this}; }
  void OnTensor(std::uint32_t tensor, float amax, const Digest& digest) override;
  void OnAxisAmax(std::uint32_t tensor, std::span<const float> amax) override;
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override;

  // To be called when everything has come. Checks coverage and tied tensors. Throws, naming what is wrong.
  void Finish();

  std::uint64_t bytes() const { return bytes_; }  // taken so far, as are the layers
  std::uint64_t layers() const { return OfModel(pipeline_.layers_done()); }
  // How many layers there will be in the end: all but those that a partial version leaves out.
  std::uint64_t layers_awaited() const;
  std::uint64_t bytes_awaited() const { return schedule().schedule.total_bytes(); }
  const Manifest& manifest() const { return manifest_; }
  // The manifest with the digests of the tensors that were seen. It names a version that has no name yet.
  Manifest FinalManifest() const;
  void Describe(ReloadReport& report) const;

 private:
  const PlannedSchedule& schedule() const { return snapshot_ ? prepared_->snapshot : prepared_->stream; }
  // In a plan of kernel tensors each is a layer. They count as their share of the model's layers.
  std::uint64_t OfModel(std::uint64_t layers) const {
    return layers * prepared_->kernel.num_layers() / std::max<std::size_t>(prepared_->plan.layers().size(), 1);
  }
  void Summarize(std::uint32_t tensor, const TensorSummary& summary);
  void NotePart(std::uint32_t number, const TensorSummary& summary);
  const PreparedLayout::PartRequest* FindRequest(std::uint32_t number) const;
  void CheckAliases() const;
  bool Comparable(std::uint32_t tensor, std::uint32_t other) const;

  const Environment environment_;
  const std::shared_ptr<const PreparedLayout> prepared_;  // the second owner is the stager, for the next such version
  const Manifest manifest_;
  const bool snapshot_;
  ReloadPipeline pipeline_;
  std::vector<TensorSummary> summaries_;                          // the manifest's, completed with what came
  std::map<std::uint32_t, std::vector<TensorSummary>> of_parts_;  // for streams: of each tensor's parts
  std::uint64_t bytes_ = 0;
};

}  // namespace layercast
