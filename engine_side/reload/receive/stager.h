// Takes a version from its source through the pipeline to the committer. Owns what that needs: the model tree, its
// plans, and the memory that the commit policy keeps. Used by the receiver, which decides which call is allowed when.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine_side/reload/commit/committer.h"
#include "engine_side/reload/commit/staged_record.h"
#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/noise/norm_noise.h"
#include "engine_side/reload/pipeline/stage_clock.h"
#include "engine_side/reload/receive/attempt.h"
#include "engine_side/reload/receive/served_version.h"
#include "engine_side/reload/receive/staged_version.h"
#include "engine_side/reload/sources/version_source.h"
#include "engine_side/reload/sources/walk_source.h"
#include "engine_side/reload/work/host_work.h"
#include "layercast/receiver.h"
#include "src/base/memory/caching_memory.h"
#include "src/transport/channel/channel.h"

namespace layercast {

// Returns `model`, as a host program gives it. Throws kInvalidArgument if it is null, or another rank's than
// `parallel`.
std::unique_ptr<Module> GivenTree(std::unique_ptr<Module> model, const ParallelConfig& parallel);

// Throws unless a partial version may come from there, to an engine that serves a whole version or none.
void ExpectMayBePartial(const ReloadSource& source, bool serves);

// Resource; one thread only. What it borrows outlives it.
class Stager {
 public:
  // `report` is filled in as things happen, also if they fail. `transports` are the ways to reach publishers. If there
  // are none, all of this build are used; those between GPUs then use the device of the captured buffers.
  Stager(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
         const CapturedBuffers& captured, const ReceiverOptions& options, FailPoints& failpoints, ReloadReport& report,
         std::vector<std::unique_ptr<Transport>> transports = {});
  ~Stager();

  // Throws kPermissionDenied if versions have to be signed, and nobody signs this source's.
  void ExpectVouchedFor(const ReloadSource& source) const;
  // Finds out what the source holds and makes the plan. Everything that can be refused before a byte moves is refused
  // here. `attempt` is as in Receiver::Stage, and `served` has what FromOrigin reads again, and what deltas may be of.
  // Once `stop` is requested, this and Receive soon end in kCancelled.
  void Open(ReloadSource source, std::uint64_t attempt, const ServedVersion& served, std::stop_token stop = {});
  // As VersionSource's.
  void LetGo() {
    if (request_.from != nullptr) request_.from->LetGo(context_);
  }
  void Reach() {
    if (request_.from != nullptr) request_.from->Reach(context_);
  }
  // Moves the bytes of the source that Open has opened, through the pipeline to the committer.
  StagedVersion Receive();
  // Begin takes the place of Open for callers who bring tensors call by call, by Load before Receive. If `specs` is
  // empty, the specs of the last whole version are taken. Load returns the names of the tensors that it took.
  void Begin(const std::vector<TensorSpec>& specs);
  std::set<std::string> Load(WeightsIterator& weights);
  // Adopts a version that an earlier process has staged. Throws kFailedPrecondition unless the staging memory holds
  // `version`, whole, kCorrupt if its bytes are not those that were staged, and kUnsupported on a device.
  StagedVersion Adopt(const Version& version);
  // Drops what has been received of the version that is open, and closes it.
  void Abandon();
  // Gives back what is kept from one version to the next, after Abandon. The next version takes it anew.
  void ReleaseMemory();

  void SetChannel(std::string channel) { peers_.SetChannel(std::move(channel)); }
  void SetTimeout(std::chrono::milliseconds timeout) { peers_.SetTimeout(timeout); }
  // The stage that a reload has come to after Receive: see ProgressTeller::Enter.
  void EnterStage(const char* stage) { progress_.Enter(stage, report_.version); }
  // Where the time of a stage goes that is none of the pipeline's.
  StageClock::Account AccountOf(const char* stage) {
    return {&report_.stage_ms[stage], LaneOf(options_.trace, stage, TraceKind::kStage)};
  }
  // The committer. The first call makes it, and throws if the engine's captured buffers do not fit the model.
  Committer& committer();
  // The noise of the norms. The first call makes it, and throws likewise.
  NormNoise& noise();

 private:
  VersionSource::Form form() const { return request_.from->form(); }
  void BeginAttempt(Opened opened);
  void CheckConfigs(std::span<const SourceConfig> configs);
  void NoteCame();  // reports the progress
  StagedVersion FinishAttempt();
  StagedVersion Digested(const Version& version);
  // The sink for the layers of a new version, which replaces what is staged.
  LayerSink& BeginWriting();
  std::optional<Noise> NoiseFor(const Manifest& manifest) const;
  StageWork& work();
  // The engine's kernel tensors. They are the same for every version, in whatever form the version comes.
  const KernelLayout& layout();
  std::shared_ptr<const PreparedLayout> Prepare(Opened& opened);
  std::shared_ptr<const PreparedLayout> PrepareCheckpoint(const Manifest& manifest, HeldParts parts);
  std::shared_ptr<const PreparedLayout> PrepareWhole(const Manifest& manifest);

  const std::unique_ptr<Module> model_;
  const ParallelConfig parallel_;
  const QuantizationConfig quantization_;
  const LayerRecipes recipes_;
  const CapturedBuffers& captured_;
  const ReceiverOptions options_;
  FailPoints& failpoints_;
  ReloadReport& report_;
  WorkerPool pool_;
  HostMemory host_memory_;
  CachingMemory layer_cache_{host_memory_};  // empty between reloads, so that the engine has that memory
  MemoryResource& kept_memory_;
  MemoryResource& layer_memory_;
  HostWork host_work_{layer_memory_, pool_};
  const std::shared_ptr<ReloadStream> stream_;  // null if all captured buffers are on the host. Its opener may share it
  const std::unique_ptr<DeviceWork> device_work_;  // null if stream_ is
  ProgressTeller progress_;
  const Keys keys_;
  PeerSession peers_;

  std::shared_ptr<const PreparedLayout> prepared_;  // of the last checkpoint; the other owner is attempt_
  std::optional<const KernelLayout> layout_;        // of the model in full precision
  std::unique_ptr<Committer> committer_;            // refers to layout_
  std::optional<StagedRecord> staged_record_;       // made with it, if staging may outlive the process
  std::optional<NormNoise> noise_;                  // refers to layout_
  std::vector<SourceConfig> agreed_configs_;        // of the last source that differed in nothing

  // What Open or Begin has opened.
  ReloadSource request_{nullptr};
  SourceContext context_;
  std::optional<Version> version_;  // as Opened's, and the origin
  std::optional<Origin> origin_;
  std::unique_ptr<ReloadAttempt> attempt_;
  std::unique_ptr<TensorTaker> loading_;  // of Begin's
};

}  // namespace layercast
