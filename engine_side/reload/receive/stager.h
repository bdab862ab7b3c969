// Takes a version from its source through the pipeline to the committer. Owns what that needs: the model tree, its
// plans, and the memory that the commit policy keeps. Used by the receiver, which decides which call is allowed when.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "engine_side/reload/commit/committer.h"
#include "engine_side/reload/commit/staged_record.h"
#include "engine_side/reload/commit/staged_version.h"
#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/receive/attempt.h"
#include "engine_side/reload/sources/config_check.h"
#include "engine_side/reload/sources/peer_session.h"
#include "engine_side/reload/sources/progress_teller.h"
#include "engine_side/reload/work/host_work.h"
#include "layercast/receiver.h"
#include "src/base/memory/caching_memory.h"
#include "src/transport/channel/channel.h"

namespace layercast {

// Resource; one thread only. What it borrows outlives it.
class Stager {
 public:
  // `report` is filled in as things happen, also if they fail. `transports` are the ways to reach publishers. If there
  // are none, all of this build are used; those between GPUs then use the device of the captured buffers.
  Stager(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
         const CapturedBuffers& captured, const ReceiverOptions& options, FailPoints& failpoints, ReloadReport& report,
         std::vector<std::unique_ptr<Transport>> transports = {});
  ~Stager();

  // Finds out what the source holds and makes the plan. Everything that can be refused before a byte moves is refused
  // here. `attempt` is as in Receiver::Stage, and `origin` is what FromOrigin reads again. Once `stop` is requested,
  // this and Receive soon end in kCancelled.
  void Open(ReloadSource source, std::uint64_t attempt, const Origin& origin, std::stop_token stop = {});
  // LetGo closes the session with a publisher. Reach opens it again, perhaps much later. Reach throws if the
  // publisher cannot be reached any more, or no longer offers the version.
  void LetGo() { peers_.LetGo(); }
  void Reach() { peers_.Reach(); }
  // Moves the bytes of the source that Open has opened, through the pipeline to the committer.
  StagedVersion Receive();
  // Begin and Load take the place of Open and of a part of Receive for callers who bring tensors call by call. If
  // `specs` is empty, the specs of the last whole version are taken. Load returns the names of the tensors that it
  // took.
  void Begin(const std::vector<TensorSpec>& specs);
  std::set<std::string> Load(WeightsIterator& weights);
  // Adopts a version that an earlier process has staged. Throws kFailedPrecondition unless the staging memory holds
  // `version`, whole, kCorrupt if its bytes are not those that were staged, and kUnsupported on a device.
  StagedVersion Adopt(const Version& version);
  // Drops what has been received of the version that is open, and closes it.
  void Abandon();

  void SetChannel(std::string channel) { peers_.SetChannel(std::move(channel)); }
  void SetTimeout(std::chrono::milliseconds timeout) { peers_.SetTimeout(timeout); }
  // The stage that a reload has come to after Receive: see ProgressTeller::Enter.
  void EnterStage(const char* stage) { progress_.Enter(stage, report_.version); }
  // The committer. The first call makes it, and throws if the engine's captured buffers do not fit the model.
  Committer& committer();

 private:
  void OpenOrigin(const Origin& origin);
  void OpenPath(const CheckpointSource& source, bool is_checkpoint_format);
  void OpenCheckpoint(const CheckpointSource& source);
  void OpenIterator();
  void OpenKernelFormatIterator();
  void OpenDummy();
  void OpenPublisher();
  void OpenEngine();
  StagedVersion ReceiveKernelFormat(WeightsIterator& weights, const std::string& lineage);
  StagedVersion ReceivePublished();
  StagedVersion ReceiveLent(const Version& version, const Digest& served_digest);
  void FinishWork();
  void DescribeKernelTensors(std::uint64_t bytes);

  // `configs` are what the source says of its model.
  void BeginAttempt(Manifest manifest, const Arrival& arrival, std::vector<SourceConfig> configs = {},
                    HeldParts parts = {});
  void CheckConfigs(std::span<const SourceConfig> configs);
  void BeginPrepared(std::shared_ptr<const PreparedLayout> prepared, Manifest manifest, const Arrival& arrival);
  void TakeAll(WeightsIterator& weights);
  // The walk, made to report its progress, and to end once stop_ is requested.
  std::unique_ptr<WeightsIterator> Watched(std::unique_ptr<WeightsIterator> weights);
  // Reports the progress. `bytes` of whole tensors or chunks have come: of a checkpoint, what this rank took of them
  // counts.
  void NoteCame(std::uint64_t bytes);
  // If `published` is empty, the version's name follows from the tensors that came.
  StagedVersion FinishAttempt(std::optional<Version> published);
  StagedVersion Digested(const Version& version);
  // The sink for the layers of a new version, which replaces what is staged.
  LayerSink& BeginWriting();
  StageWork& work();
  // The plan of the model's parameters as they are before any version says in which form they come.
  LoadPlan FullPrecisionPlan() const;
  // The engine's kernel tensors. They are the same for every version, in whatever form the version comes.
  const KernelLayout& layout();
  std::shared_ptr<const PreparedLayout> Prepare(const Manifest& manifest, HeldParts parts);
  std::vector<std::uint32_t> LayerOrder(const std::vector<TensorSpec>& specs) const;
  // A manifest of tensors that have these specs. If `specs` is empty, it has those of the last whole version.
  Manifest ManifestOf(const std::string& lineage, std::uint64_t step, std::span<const TensorSpec> specs) const;

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
  PeerSession peers_;

  std::shared_ptr<const ManifestLayout> last_layout_;  // of the last whole version
  std::shared_ptr<const PreparedLayout> prepared_;     // the other owner is attempt_
  std::optional<const KernelLayout> layout_;           // of the model in full precision
  std::unique_ptr<Committer> committer_;               // refers to layout_
  std::optional<StagedRecord> staged_record_;          // made with it, if staging may outlive the process
  std::vector<SourceConfig> agreed_configs_;           // of the last source that differed in nothing

  // What Open or Begin has opened.
  ReloadSource source_;
  std::uint64_t attempt_number_ = 0;
  std::stop_token stop_;
  std::unique_ptr<ReloadAttempt> attempt_;
  std::function<StagedVersion()> receive_;
};

}  // namespace layercast
