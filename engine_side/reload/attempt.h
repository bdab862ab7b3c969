// One reload of one version: the pipeline, what feeds it, and what is known of it in the end. A receiver has at most
// one. Resource; one thread only.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine_side/plan/piece.h"
#include "engine_side/reload/pipeline.h"
#include "layercast/report.h"
#include "layercast/weights_iterator.h"
#include "src/session/fetch.h"

namespace layercast {

// What is made once for a layout of tensors, and replayed for every version of it. Immutable.
struct PreparedLayout {
  // `of`: made for `manifest`.
  PreparedLayout(LoadPlan of, const Manifest& manifest, const KernelLayout& kernel, const LayerRecipes& recipes,
                 std::uint64_t chunk_bytes);

  LoadPlan plan;
  KernelLayout kernel;                                     // For the plan
  PlannedSchedule snapshot;                                // chunks gather small tensors
  PlannedSchedule stream;                                  // chunks of one tensor each; also how whole tensors are cut
  std::vector<std::vector<std::uint32_t>> stream_regions;  // of each tensor, as indices into stream.pieces
  std::vector<AmaxRequest> amax_requests;                  // of whole tensors
  // The same of a session, where publishers may have a tensor in parts: each part's, by its number.
  struct PartRequest {
    AmaxRequest request;
    std::uint32_t tensor = 0;  // whose part it is
    Box box;                   // of it
  };
  std::vector<PartRequest> part_requests;  // by number
  // Where publishers have tensors in parts: of each part's number, its tensor and which of its parts it is.
  struct PartPlace {
    std::uint32_t tensor = 0;
    std::size_t part = 0;
  };
  std::map<std::uint32_t, PartPlace> part_places;  // without empty parts
  std::vector<AmaxRequest> SessionRequests() const;

 private:
  void SayWhenNeeded();
  void ShareRequests(const Manifest& manifest);
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
    bool direct;  // wanted where it is possible
    std::uint64_t buffer_limit;
  };
  // `prepared` is of the manifest's layout. `in_order`: the pieces come in its own order, so `direct` may be used.
  ReloadAttempt(const Environment& environment, std::shared_ptr<const PreparedLayout> prepared, Manifest manifest,
                bool in_order, bool snapshot);

  // Whole tensors, from files or an iterator.
  void Take(const NamedTensor& tensor);
  // From a session: the schedule that it asks for, and the sink that it fills.
  const PlannedSchedule& schedule() const { return snapshot_ ? prepared_->snapshot : prepared_->stream; }
  void OnTensor(std::uint32_t tensor, float amax, const Digest& digest) override;
  void OnAxisAmax(std::uint32_t tensor, std::span<const float> amax) override;
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override;

  // Everything has come: checks coverage and tied tensors. Throws naming what is wrong.
  void Finish();

  const PreparedLayout& prepared() const { return *prepared_; }
  const Manifest& manifest() const { return manifest_; }
  // With the digests of whole tensors that were seen: what names the version.
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
  const std::shared_ptr<const PreparedLayout> prepared_;  // the second owner is the receiver's cache
  const Manifest manifest_;
  const bool snapshot_;
  ReloadPipeline pipeline_;
  std::vector<TensorSummary> summaries_;                          // the manifest's, completed by what was seen
  std::map<std::uint32_t, std::vector<TensorSummary>> of_parts_;  // of a stream, by tensor, in the plan's order
  std::set<std::string> loaded_;
  std::uint64_t bytes_ = 0;
};

}  // namespace layercast
