// The engine's side, one rank: takes new weights and writes them into the engine's captured buffers. An engine of your
// own uses it, and so does the built-in one.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "layercast/captured_buffers.h"
#include "layercast/checkpoint_source.h"
#include "layercast/commit_policy.h"
#include "layercast/export.h"
#include "layercast/memory.h"
#include "layercast/model/module.h"
#include "layercast/parallel.h"
#include "layercast/report.h"
#include "layercast/version.h"
#include "layercast/weight_layout.h"
#include "layercast/weights_iterator.h"

namespace layercast {

struct QuantizationConfig {
  // "none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8", "mxfp4", "nvfp4" or "int8_per_channel"; or
  // "checkpoint": each layer keeps the form that config.json says it is in, and is not quantized where it says nothing.
  std::string recipe = "none";
  bool power_of_two_scales = false;  // fp8_per_block: scales rounded up to a power of two
  // What becomes of a layer that is quantized already in a checkpoint on disk, if its form is not the recipe's or this
  // rank's part cannot be cut out of it. True: it is dequantized to the model's dtype and quantized anew. False: it is
  // refused.
  bool requantize = false;
  WeightLayout layout{};  // of the engine's own memory; what is published, exported or lent does not have it
};

// Where new weights come from. Value; moved into a reload.
struct LAYERCAST_PUBLIC ReloadSource {
  enum class Kind : std::uint8_t { kOrigin, kPath, kPublisher, kEngine, kIterator, kDummy };
  Kind kind = Kind::kOrigin;
  CheckpointSource checkpoint;         // kPath
  std::vector<std::string> endpoints;  // of a publisher, of all ranks of a sharded trainer, or of a rank that lends
  std::string lineage;                 // of the version; empty: any of the publisher's
  std::optional<std::uint64_t> step;   // empty: the publisher's newest
  std::unique_ptr<WeightsIterator> iterator;
  std::vector<TensorSpec> specs;  // of the iterator's tensors; empty: those of the last load
  std::uint64_t seed = 0;         // kDummy
  Version version;                // kEngine: what the engine that lends serves
  Digest served_digest;           // kEngine: of its rank's captured buffers; this rank's must read back the same
  // False: the tensors are in kernel format, that is, this rank's own captured buffers by name, shape and dtype
  // ("...qkv_proj.weight_scale"). They are copied straight, and checked just as hard.
  bool is_checkpoint_format = true;
  // The tensors, in checkpoint format, may be a part of the model. A layer of which nothing comes keeps the bytes that
  // it serves, and so its digests. A layer of which something comes needs all of its tensors, on whatever rank they end
  // up. The engine then serves the version that came last, under its name.
  bool partial = false;
  // With `partial`: paths of layers ("model.layers.0.mlp.down_proj") or of modules above them. No other layer may be
  // left out. Empty: any may.
  std::vector<std::string> may_keep{};
};

// Re-reads the path that was committed last.
LAYERCAST_PUBLIC ReloadSource FromOrigin();
LAYERCAST_PUBLIC ReloadSource FromPath(std::string path, bool is_checkpoint_format = true);
// The format `sharded_state`, also where `auto` finds it, is kernel format.
LAYERCAST_PUBLIC ReloadSource FromCheckpoint(CheckpointSource checkpoint);
LAYERCAST_PUBLIC ReloadSource FromPublisher(std::string endpoint, std::string lineage = "",
                                            std::optional<std::uint64_t> step = std::nullopt);
// A sharded trainer: the endpoints of all its ranks, each of which publishes what it holds, in any order.
LAYERCAST_PUBLIC ReloadSource FromPublishers(std::vector<std::string> endpoints, std::string lineage = "",
                                             std::optional<std::uint64_t> step = std::nullopt);
// From the same rank of another engine of the same layout, whose `lend_weights` gives the arguments
// (engine_side/server/RPC.md): its kernel tensors, derived ones included, under the version that it serves.
LAYERCAST_PUBLIC ReloadSource FromEngineRank(std::string endpoint, Version version, Digest served_digest);
LAYERCAST_PUBLIC ReloadSource FromIterator(std::unique_ptr<WeightsIterator> iterator,
                                           std::vector<TensorSpec> specs = {}, bool is_checkpoint_format = true);

// Random weights of that seed, for an engine that starts empty: the version is {"dummy", seed}.
LAYERCAST_PUBLIC ReloadSource FromDummy(std::uint64_t seed = 0);

struct ReceiverOptions {
  std::string engine = "engine";  // its name, in handshakes and errors
  std::string channel{};          // forces a data channel; not having it is an error. Empty: the fastest
  std::size_t threads = 2;        // for kernels and copies
  std::uint64_t chunk_bytes = 4U << 20;
  // The most bytes of incomplete layers; 0: no bound. A stream whose order would exceed it fails with
  // kResourceExhausted, naming the layers that hold the memory. A snapshot comes in layer order and needs the bytes of
  // one layer.
  std::uint64_t buffer_limit = 0;
  // Relaying: the endpoint at which this rank serves what it takes of a snapshot to receivers of the same schedule
  // ("tcp://10.0.0.5:0"). They are told this address as it stands, except that a port of 0 picks one. The rank keeps
  // the source bytes of its share of a version, in host memory, until the next reload. Empty: it does not relay.
  std::string relay{};
  bool relay_remote = false;                      // `relay` may be reached from other hosts
  std::chrono::milliseconds timeout{300'000};     // of a whole reload
  std::chrono::milliseconds peer_timeout{5'000};  // a publisher that is silent for so long is lost
  CommitPolicy commit = CommitPolicy::kStaged;
  // True: pieces go straight to their kernel tensors where the recipe allows it. False: all five stages everywhere.
  bool direct = true;
  // Called while bytes arrive from a publisher or a checkpoint, on the staging thread: so far, and in all. May be
  // empty.
  std::function<void(std::uint64_t bytes, std::uint64_t bytes_total)> on_progress{};
  // Both memory resources must outlive the receiver.
  // Holds what the commit policy keeps (null: in host memory), allocated at the first reload: the staged copy, the undo
  // log, a byte for each buffer. An engine whose weights outlive its processes gives memory that does so too, and hands
  // the same memory in again after a restart.
  MemoryResource* staging_memory = nullptr;
  // Holds layer buffers and receive slots. Null: host memory that is reused until the reload ends.
  MemoryResource* layer_memory = nullptr;
};

// Some captured buffers hold one version, some another: no forward pass may run until a whole version is committed.
struct Torn {
  std::optional<Version> from;  // empty: none, or not known to this process
  Version to;
};

// Resource; one call at a time, but for Cancel. After a call that throws, the engine serves what it served before, or
// is torn(). Which of the two, and when, depends on the commit policy (docs/commit.md).
class LAYERCAST_PUBLIC Receiver {
 public:
  // `model`: this rank's tree, on meta (ModelRegistry builds one from a config.json, or the host program does).
  // `captured`: a buffer for each kernel tensor that the recipe makes of that tree's parameters (names and shapes:
  // docs/models.md, engine_side/quant/RECIPES.md). The first reload refuses a table that does not fit, and says of each
  // buffer what was expected.
  Receiver(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
           CapturedBuffers captured, const ReceiverOptions& options = {});
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Stage, then Commit: all that an engine of one rank needs. Throws Error. What is served then depends on the commit
  // policy; under kStaged a failure before the commit leaves the old version untouched.
  ReloadReport ReloadWeights(ReloadSource source);

  // The two phases, for engines of several ranks: stage on all, then commit on all between two forward steps. `attempt`
  // grows with every reload of the engine and is the same on all its ranks, because a stream is walked once for all of
  // them. 0: counted here.
  // Under kStaged, Stage receives and processes everything. Under kUndo and kInPlace it only finds out what the source
  // holds and checks the plan against it; Commit then receives, and writes each layer as soon as it is verified.
  void Stage(ReloadSource source, std::uint64_t attempt = 0);
  // The last chance to refuse, before any rank commits: makes the checks that Commit begins with. Optional.
  void Prepare();
  // Throws kFailedPrecondition when nothing is staged, or when the engine has moved a buffer. What a failure leaves:
  // kStaged: what was staged, to be committed again. kUndo: the old bytes. kInPlace: torn() where anything was written.
  void Commit();
  // Puts back what the latest Commit overwrote, until the next Stage; also where this rank's Commit succeeded and
  // another rank's did not. May be called again after it threw, and by a new process, over the same staging_memory,
  // after the old one died. Ends a reload that is being received call by call. False: something was written that the
  // policy cannot put back, and this rank is torn().
  bool RollBack();
  // As ReceiverOptions::channel, for publishers from now on.
  void SetChannel(std::string channel);
  // As ReceiverOptions::timeout, of each reload from now on.
  void SetTimeout(std::chrono::milliseconds timeout);
  // Drops what is staged or half received, and rolls back what was half written. Does nothing if there is none.
  void Abort();
  // For any thread, while another one is in a call: gives up that attempt, and all before it, because another rank of
  // the engine has failed. Stage throws kCancelled between two tensors or chunks, or within half a second of waiting
  // for a publisher; so does Commit where it receives (kUndo, kInPlace), and either of them where it comes later. What
  // is staged already stays: Abort drops it.
  void Cancel(std::uint64_t attempt);
  // Reads the served bytes back and compares them with what was staged; after Commit, while the engine runs. Throws
  // kCorrupt when they differ: the engine is torn() then.
  void VerifyServed();

  // The calls of vLLM's layerwise reload. Under kUndo and kInPlace layers are written as they become whole. So no
  // forward pass may run from initialize_layerwise_reload until finalize_layerwise_processing has returned, or one of
  // these calls has thrown.
  void record_metadata_for_reloading();
  void initialize_layerwise_reload(std::vector<TensorSpec> specs = {});
  // Any part of the weights, any number of times. Returns the names that were loaded.
  std::set<std::string> load_weights(WeightsIterator& weights);
  // Commits if all tensors came exactly once; otherwise throws, naming every missing one.
  ReloadReport finalize_layerwise_processing();

  const std::optional<Version>& version() const;  // served now; empty before the first commit, and while torn
  const std::optional<Torn>& torn() const;
  const ReloadReport& report() const;  // of the latest reload, also of one that failed
  // The buffers that the engine handed over. Where the layout pads or transposes one, it is shown as its tensor alone.
  const CapturedBuffers& captured() const;
  // The version that is staged: what AdoptStaged takes after a crash.
  const Version& staged_version() const;
  // For a restarted rank whose staging memory (ReceiverOptions::staging_memory) survived: takes what lies there as that
  // version, staged whole. kStaged only. Throws kFailedPrecondition where nothing was staged whole there, or another
  // version, or for buffers of another layout; kCorrupt where the bytes are no longer those that were staged.
  void AdoptStaged(const Version& version);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
