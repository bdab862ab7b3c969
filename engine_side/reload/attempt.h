// One reload of one version: the pipeline, what feeds it, and what is known of the version in the end. Used by the
// stager, which has at most one at a time. Resource; one thread only.
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

// What is made once for a layout of tensors, and replayed for every version that has it. Immutable.
struct PreparedLayout {
  // `of` is the plan that was made for `manifest`. `kernel` is the kernel layout of the model in full precision.
  PreparedLayout(LoadPlan of, const Manifest& manifest, const KernelLayout& kernel, const LayerRecipes& recipes,
                 std::uint64_t chunk_bytes);

  LoadPlan plan;
  KernelLayout kernel;                                     // KernelLayout::For the plan
  PlannedSchedule snapshot;                                // its chunks gather small tensors
  PlannedSchedule stream;                                  // a chunk is of one tensor; Take cuts tensors by it too
  std::vector<std::vector<std::uint32_t>> stream_regions;  // by tensor: indices into stream.pieces
  std::vector<AmaxRequest> amax_requests;                  // of whole tensors; sorted by tensor
  // An amax request as a session sends it. If publishers hold a tensor in parts, each part has a request of its own,
  // which names the part by its number.
  struct PartRequest {
    AmaxRequest request;
    std::uint32_t tensor = 0;  // the tensor that it is a part of
    Box box;                   // of that tensor
  };
  std::vector<PartRequest> part_requests;  // sorted by part number
  // If publishers hold tensors in parts: which tensor a part number belongs to, and which of the tensor's parts it is.
  struct PartPlace {
    std::uint32_t tensor = 0;
    std::size_t part = 0;
  };
  std::map<std::uint32_t, PartPlace> part_places;  // by part number; without empty parts
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
    bool direct;  // whether layers may be processed directly
    std::uint64_t buffer_limit;
  };
  // `prepared` was made for the manifest's layout. `in_order` says that pieces come in the plan's order, so that layers
  // may be processed directly. `snapshot` chooses between the schedules of a snapshot and of a stream.
  ReloadAttempt(const Environment& environment, std::shared_ptr<const PreparedLayout> prepared, Manifest manifest,
                bool in_order, bool snapshot);

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
  const std::shared_ptr<const PreparedLayout> prepared_;  // the second owner is the receiver's cache
  const Manifest manifest_;
  const bool snapshot_;
  ReloadPipeline pipeline_;
  std::vector<TensorSummary> summaries_;                          // the manifest's, completed with what came
  std::map<std::uint32_t, std::vector<TensorSummary>> of_parts_;  // for streams: of each tensor's parts
  std::set<std::string> loaded_;
  std::uint64_t bytes_ = 0;
};

}  // namespace layercast
