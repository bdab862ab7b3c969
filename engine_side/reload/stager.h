// Takes a version from wherever it comes through the pipeline, to the committer. Owns what that needs: the model tree,
// its plans, the memory that the commit policy keeps. Used by the receiver, which knows which call is right when.
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

#include "engine_side/reload/attempt.h"
#include "engine_side/reload/committer.h"
#include "engine_side/reload/host_work.h"
#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/peer_session.h"
#include "engine_side/reload/staged_record.h"
#include "engine_side/reload/staged_version.h"
#include "layercast/receiver.h"
#include "src/base/caching_memory.h"
#include "src/transport/channel.h"

namespace layercast {

// Resource; one thread only. What it borrows outlives it.
class Stager {
 public:
  // `report` is filled in as things happen, also where they fail. `transports`: by which publishers are reached; none
  // given: all of this build, those between GPUs on the buffers' device.
  Stager(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
         const CapturedBuffers& captured, const ReceiverOptions& options, FailPoints& failpoints, ReloadReport& report,
         std::vector<std::unique_ptr<Transport>> transports = {});

  // Finds out what the source holds and makes the plan: everything that can be refused before a byte moves is refused
  // here. `attempt`: as in Receiver::Stage. `origin`: what FromOrigin re-reads. `stop`: this and Receive end in
  // kCancelled soon after it is asked for.
  void Open(ReloadSource source, std::uint64_t attempt, const Origin& origin, std::stop_token stop = {});
  // Lets go of a publisher until Reach, which may come much later; throws if it cannot be reached any more, or offers
  // that version no more.
  void Release() { peers_.Release(); }
  void Reach() { peers_.Reach(); }
  // Moves the bytes of what was opened.
  StagedVersion Receive();
  // Open, and a part of Receive, call by call. Empty specs: those of the last load.
  void Begin(const std::vector<TensorSpec>& specs);
  std::set<std::string> Load(WeightsIterator& weights);
  // What was staged before this process began, whole, if it is that version: else throws kFailedPrecondition, or
  // kCorrupt.
  StagedVersion Adopt(const Version& version);
  // Drops what is half received.
  void Abandon();

  void SetChannel(std::string channel) { peers_.SetChannel(std::move(channel)); }
  void SetTimeout(std::chrono::milliseconds timeout) { peers_.SetTimeout(timeout); }
  // Made at the first call: throws what is wrong with the engine's buffers.
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
  void DescribeKernelTensors(std::uint64_t bytes);

  struct Arrival {
    std::string from{};     // "publisher tcp://...", for errors; empty: from the caller of this process
    bool in_order = false;  // of the plan
    bool snapshot = false;  // from a publisher's arena
  };
  void BeginAttempt(Manifest manifest, const Arrival& arrival, HeldParts parts = {});
  void BeginPrepared(std::shared_ptr<const PreparedLayout> prepared, Manifest manifest, const Arrival& arrival);
  void TakeAll(WeightsIterator& weights);
  // The same walk, which says how far it has got.
  std::unique_ptr<WeightsIterator> Watched(std::unique_ptr<WeightsIterator> weights, std::uint64_t bytes_total) const;
  // The same of the caller's own, whose bytes nobody has counted.
  std::unique_ptr<WeightsIterator> Unmeasured(std::unique_ptr<WeightsIterator> weights) const;
  // Without a version: what it is called follows from the tensors that came.
  StagedVersion FinishAttempt(std::optional<Version> published);
  StagedVersion Digested(const Version& version);
  // Where the layers of a version go, that replaces what is staged.
  LayerSink& BeginWriting();
  StageWork& work();
  // The engine's kernel tensors: the same for every version, in whatever form it comes.
  const KernelLayout& layout();
  std::shared_ptr<const PreparedLayout> Prepare(const Manifest& manifest, HeldParts parts);
  std::vector<std::uint32_t> LayerOrder(const std::vector<TensorSpec>& specs) const;
  // Of tensors that have these specs, or those of the last load.
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
  CachingMemory layer_cache_{host_memory_};  // empty between reloads: that memory is the engine's
  MemoryResource& kept_memory_;
  MemoryResource& layer_memory_;
  HostWork host_work_{layer_memory_, pool_};
  const std::shared_ptr<ReloadStream> stream_;  // null: all captured buffers are host memory. Its opener may share it
  const std::unique_ptr<DeviceWork> device_work_;  // where there is a stream
  PeerSession peers_;

  std::shared_ptr<const ManifestLayout> last_layout_;  // of the last load that was whole
  std::shared_ptr<const PreparedLayout> prepared_;     // the other owner is an attempt
  std::optional<const KernelLayout> layout_;           // of the model in full precision
  std::unique_ptr<Committer> committer_;               // refers to layout_
  std::optional<StagedRecord> staged_record_;          // made with it, where what is staged outlives the process

  // Of what is opened.
  ReloadSource source_;
  std::uint64_t attempt_number_ = 0;
  std::stop_token stop_;
  std::unique_ptr<ReloadAttempt> attempt_;
  std::function<StagedVersion()> receive_;
};

}  // namespace layercast
