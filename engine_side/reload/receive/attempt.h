// One reload of one version: the pipeline, what feeds it, and what is known of the version in the end. Used by the
// stager, which has at most one at a time. Resource; one thread only.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine_side/reload/layout/prepared_layout.h"
#include "engine_side/reload/pipeline/pipeline.h"
#include "layercast/report.h"
#include "layercast/weights_iterator.h"
#include "src/session/fetch/fetch.h"

namespace layercast {

// How a version's tensors come. Value.
struct Arrival {
  std::string from{};     // "publisher tcp://...", for errors; empty if this process's caller brings it
  bool in_order = false;  // tensors come in the plan's order, so that layers may be processed directly
  bool snapshot = false;  // it comes from a publisher's snapshot, whose schedule it has; otherwise a stream's
};

class ReloadAttempt final : public FetchSink {
 public:
  struct Environment {
    const Module& model;
    LayerRecipes recipes;
    LayerSink& sink;
    StageWork& work;
    WorkerPool& pool;
    FailPoints& failpoints;
    bool direct;  // whether layers may be processed directly
    std::uint64_t buffer_limit;
  };
  // `prepared` was made for the manifest's layout.
  ReloadAttempt(const Environment& environment, std::shared_ptr<const PreparedLayout> prepared, Manifest manifest,
                const Arrival& arrival);

  // Takes a whole tensor, from files or an iterator.
  void Take(const NamedTensor& tensor);
  // For a version that comes from a session: the schedule to ask for. The session then calls the FetchSink methods
  // below.
  const PlannedSchedule& schedule() const { return snapshot_ ? prepared_->snapshot : prepared_->stream; }
  void OnTensor(std::uint32_t tensor, float amax, const Digest& digest) override;
  void OnAxisAmax(std::uint32_t tensor, std::span<const float> amax) override;
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override;

  // To be called when everything has come. Checks coverage and tied tensors. Throws, naming what is wrong.
  void Finish();

  std::uint64_t bytes() const { return bytes_; }  // taken so far, as are the layers
  std::uint64_t layers() const { return pipeline_.layers_done(); }
  // How many layers there will be in the end: all but those that a partial version leaves out.
  std::uint64_t layers_awaited() const;
  const PreparedLayout& prepared() const { return *prepared_; }
  const Manifest& manifest() const { return manifest_; }
  // The manifest with the digests of the tensors that were seen. It names a version that came from files or an
  // iterator.
  Manifest FinalManifest() const;
  void Describe(ReloadReport& report) const;

 private:
  void Summarize(std::uint32_t tensor, const TensorSummary& summary);
  void NotePart(std::uint32_t number, const TensorSummary& summary);
  const PreparedLayout::PartRequest* FindRequest(std::uint32_t number) const;
  void TakeUndeclared(const NamedTensor& named) const;
  void CheckTakes(std::uint32_t tensor, const NamedTensor& named);
  void CheckAliases() const;
  bool Comparable(std::uint32_t tensor, std::uint32_t other) const;

  const Environment environment_;
  const std::shared_ptr<const PreparedLayout> prepared_;  // the second owner is the stager, for the next such version
  const Manifest manifest_;
  const bool snapshot_;
  ReloadPipeline pipeline_;
  std::vector<TensorSummary> summaries_;                          // the manifest's, completed with what came
  std::map<std::uint32_t, std::vector<TensorSummary>> of_parts_;  // for streams: of each tensor's parts
  std::set<std::string> loaded_;
  std::uint64_t bytes_ = 0;
};

}  // namespace layercast
