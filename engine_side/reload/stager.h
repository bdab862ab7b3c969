// Takes a version from wherever it comes into the staged copy. Owns what that needs: the model tree, its plans, the
// staging memory. Used by the receiver, which knows which call is right when, and commits what comes out.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "engine_side/reload/attempt.h"
#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/staging.h"
#include "layercast/receiver.h"
#include "src/base/caching_memory.h"
#include "src/transport/channel.h"

namespace layercast {

// A whole version that lies in staging.
struct StagedVersion {
  std::shared_ptr<const KernelLayout> layout;  // the other owner is the stager's cache of plans
  Manifest manifest;
  Digest digest;  // of the staged bytes: what the captured buffers will read back
};

// Resource; one thread only. What it borrows outlives it.
class Stager {
 public:
  // `report` is filled in as things happen, also where they fail.
  Stager(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
         const CapturedBuffers& captured, const ReceiverOptions& options, FailPoints& failpoints, ReloadReport& report);

  // All at once. `attempt`: as in Receiver::Stage.
  StagedVersion Stage(const ReloadSource& source, std::uint64_t attempt);
  // The same call by call. Empty specs: those of the last load.
  void Begin(const std::vector<TensorSpec>& specs);
  std::set<std::string> Load(WeightsIterator& weights);
  StagedVersion Finish();
  // What lies in staging memory already, whole, under that manifest.
  StagedVersion Adopt(Manifest manifest);
  // Drops what is half received.
  void Abandon();

  void SetChannel(std::string channel) { channel_ = std::move(channel); }
  void SetTimeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }
  const Staging& staging() const { return *staging_; }  // once something was staged
  WorkerPool& pool() { return pool_; }

 private:
  StagedVersion StageOrigin();
  StagedVersion StagePath(const std::string& path, bool is_checkpoint_format);
  StagedVersion StageCheckpoint(const std::string& path);
  StagedVersion StageIterator(const ReloadSource& source);
  StagedVersion StagePublisher(const ReloadSource& source, std::uint64_t attempt);
  StagedVersion StageKernelFormat(WeightsIterator& weights, const std::string& lineage);
  FetchOptions HowToFetch() const;
  void Describe(const FetchStats& stats);

  struct Arrival {
    bool in_order = false;  // of the plan
    bool snapshot = false;  // from a publisher's arena
  };
  void BeginAttempt(Manifest manifest, Arrival arrival);
  void TakeAll(WeightsIterator& weights);
  StagedVersion FinishAttempt(std::optional<Manifest> published);
  StagedVersion Digested(std::shared_ptr<const KernelLayout> layout, Manifest manifest);
  void EndAttempt();
  std::shared_ptr<const PreparedLayout> Prepare(const Manifest& manifest);
  std::vector<std::uint32_t> LayerOrder(const std::vector<TensorSpec>& specs) const;
  const std::vector<TensorSpec>& OrLast(const std::vector<TensorSpec>& specs) const;
  void EnsureStaging(const KernelLayout& layout);

  const std::unique_ptr<Module> model_;
  const ParallelConfig parallel_;
  const std::unique_ptr<const Recipe> recipe_;
  const bool requantize_;
  const CapturedBuffers& captured_;
  const ReceiverOptions options_;
  FailPoints& failpoints_;
  ReloadReport& report_;
  std::string channel_;  // to use with publishers; empty: the best
  std::chrono::milliseconds timeout_;
  WorkerPool pool_;
  HostMemory host_memory_;
  CachingMemory layer_cache_{host_memory_};  // empty between reloads: that memory is the engine's
  MemoryResource& staging_memory_;
  MemoryResource& layer_memory_;
  const std::vector<std::unique_ptr<Transport>> transports_ = AllTransports();

  struct Origin {
    std::string path;
    bool is_checkpoint_format = true;
  };
  Origin origin_;                                   // what FromOrigin re-reads
  std::vector<TensorSpec> last_specs_;              // of the last load
  std::shared_ptr<const PreparedLayout> prepared_;  // the other owner is an attempt, or what is staged
  std::unique_ptr<Staging> staging_;
  std::unique_ptr<ReloadAttempt> attempt_;
};

}  // namespace layercast
