// The engine's side, one rank: takes new weights and writes them into the engine's captured buffers. What a foreign
// engine uses, and what the built-in one is served by.
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
  // "none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8", "mxfp4", "nvfp4", "int8_per_channel"; or
  // "checkpoint": of each layer that of the form in which config.json says that it is, and none where it says nothing.
  std::string recipe = "none";
  bool power_of_two_scales = false;  // fp8_per_block: scales rounded up to a power of two
  // Layers of a checkpoint on disk that are quantized already, and not as the recipe would have them or not so that
  // this rank's part can be cut out, are dequantized to the model's dtype and quantized anew; otherwise they are
  // refused.
  bool requantize = false;
  WeightLayout layout{};  // of the engine's own memory: nothing that is published, exported or lent knows of it
};

// Where new weights come from. Value; moved into a reload.
struct LAYERCAST_PUBLIC ReloadSource {
  enum class Kind : std::uint8_t { kOrigin, kPath, kPublisher, kEngine, kIterator, kDummy };
  Kind kind = Kind::kOrigin;
  CheckpointSource checkpoint;         // of a path
  std::vector<std::string> endpoints;  // of a publisher, or of all that have the version between them, or of a rank
                                       // that lends
  std::string lineage;                 // of the version; empty from a publisher: any
  std::optional<std::uint64_t> step;   // empty from a publisher: the newest
  std::unique_ptr<WeightsIterator> iterator;
  std::vector<TensorSpec> specs;  // of the iterator's tensors; empty: those of the last load
  std::uint64_t seed = 0;         // of dummy weights
  Version version;                // what the engine that lends serves
  Digest served_digest;           // of its rank's captured buffers: what this rank's must read back as
  // False: names, shapes and dtypes are the captured buffers' own ("...qkv_proj.weight_scale"), this rank's, and are
  // copied straight; checked just as hard.
  bool is_checkpoint_format = true;
  // Of checkpoint tensors: they may be a part of the model. A layer that none of them is of keeps the bytes that it
  // serves, and so its digests; one that some are of needs all that are of it, on whatever rank they end up. What is
  // served then is called by the version that came last.
  bool partial = false;
};

// Re-reads the path that was committed last.
LAYERCAST_PUBLIC ReloadSource FromOrigin();
LAYERCAST_PUBLIC ReloadSource FromPath(std::string path, bool is_checkpoint_format = true);
// `sharded_state`, also as `auto` finds it, is kernel format.
LAYERCAST_PUBLIC ReloadSource FromCheckpoint(CheckpointSource checkpoint);
LAYERCAST_PUBLIC ReloadSource FromPublisher(std::string endpoint, std::string lineage = "",
                                            std::optional<std::uint64_t> step = std::nullopt);
// All ranks of a trainer that is sharded, each of which publishes what it holds, in any order.
LAYERCAST_PUBLIC ReloadSource FromPublishers(std::vector<std::string> endpoints, std::string lineage = "",
                                             std::optional<std::uint64_t> step = std::nullopt);
// From this rank's twin in another engine of the same layout, as its `lend_weights` says (engine_side/server/RPC.md):
// kernel tensors, derived ones and all, under the version that they are served as there.
LAYERCAST_PUBLIC ReloadSource FromEngineRank(std::string endpoint, Version version, Digest served_digest);
LAYERCAST_PUBLIC ReloadSource FromIterator(std::unique_ptr<WeightsIterator> iterator,
                                           std::vector<TensorSpec> specs = {}, bool is_checkpoint_format = true);

// Random weights of that seed, for an engine that starts empty: the version is {"dummy", seed}.
LAYERCAST_PUBLIC ReloadSource FromDummy(std::uint64_t seed = 0);

struct ReceiverOptions {
  std::string engine = "engine";  // its name, in handshakes and errors
  std::string channel{};          // the data channel to use, or an error; empty: the fastest
  std::size_t threads = 2;        // for kernels and copies
  std::uint64_t chunk_bytes = 4U << 20;
  // Of layers that are incomplete, at most so many bytes; 0: no bound. One that the order of a stream would break fails
  // with kResourceExhausted, naming the layers that hold the memory. A snapshot comes in layer order and needs one
  // layer's.
  std::uint64_t buffer_limit = 0;
  // Where this rank serves on what it takes of a snapshot, to receivers of the same schedule that the publisher sends
  // here ("tcp://10.0.0.5:0": it is told to them as it stands, but for a port of 0, which picks one). It keeps the
  // source bytes of its share of a version, in host memory, until the next reload. Empty: it serves nothing on.
  std::string relay{};
  bool relay_remote = false;                      // `relay` may be reached from other hosts
  std::chrono::milliseconds timeout{300'000};     // of a whole reload
  std::chrono::milliseconds peer_timeout{5'000};  // silence that counts as the publisher's loss
  CommitPolicy commit = CommitPolicy::kStaged;
  bool direct =
      true;  // let pieces go straight to their kernel tensors where the recipe allows; false: five stages everywhere
  // Called while bytes arrive from a publisher or a checkpoint, on the staging thread: so far, and in all. May be
  // empty.
  std::function<void(std::uint64_t bytes, std::uint64_t bytes_total)> on_progress{};
  // They outlive the receiver. Null: host memory, ...
  // What the commit policy keeps, allocated at the first reload: the staged copy, the undo log, a byte for each buffer.
  // An engine whose weights outlive its processes gives memory here that does too, and brings the same back.
  MemoryResource* staging_memory = nullptr;
  MemoryResource* layer_memory = nullptr;  // layer buffers and receive slots; ... reused until the reload ends
};

// Some captured buffers hold one version, some another: no forward pass may run until a whole one was committed.
struct Torn {
  std::optional<Version> from;  // empty: none, or not known to this process
  Version to;
};

// Resource; one call at a time. A call that throws leaves the engine serving what it served, or says torn(): which of
// them, and when, is the commit policy's promise.
class LAYERCAST_PUBLIC Receiver {
 public:
  // `model`: this rank's tree, on meta (ModelRegistry builds one from a config.json, or the host program does).
  // `captured`: what the recipe makes of every parameter of that tree (names and shapes: docs/models.md,
  // engine_side/quant/RECIPES.md). The first reload refuses a table that does not fit, and says of each buffer what was
  // expected.
  Receiver(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
           CapturedBuffers captured, const ReceiverOptions& options = {});
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Stage and Commit: for an engine of one rank. Throws Error; then the old version is served, untouched.
  ReloadReport ReloadWeights(ReloadSource source);

  // The two phases, for engines of several ranks: stage on all, then commit on all between two forward steps. `attempt`
  // grows with every reload of the engine and is the same on all its ranks (streams are walked once for all of them);
  // 0: counted here.
  // Under kStaged, Stage receives and processes everything. Under kUndo and kInPlace it only finds out what the source
  // holds and checks the plan against it; Commit then receives, and writes each layer as soon as it is verified.
  void Stage(ReloadSource source, std::uint64_t attempt = 0);
  // The last chance to refuse: what Commit checks, before any rank has committed. Commit also does it.
  void Prepare();
  // Throws kFailedPrecondition when nothing is staged, or when the engine has moved a buffer. What a failure leaves:
  // kStaged: what was staged, to be committed again. kUndo: the old bytes. kInPlace: torn() where anything was written.
  void Commit();
  // Puts back what the latest Commit wrote over, also where it succeeded and another rank's did not; until the next
  // Stage. May be called again after it threw, and by a process that comes after one that died, over the same
  // staging_memory. Ends a reload that is being received call by call. False: something was written that the policy
  // cannot put back, and this rank is torn().
  bool RollBack();
  // For publishers from now on: the channel to use, or an error; empty: the fastest.
  void SetChannel(std::string channel);
  // Of each reload from now on.
  void SetTimeout(std::chrono::milliseconds timeout);
  // Drops what is staged or half received, and rolls back what was half written. Does nothing when there is nothing.
  void Abort();
  // Reads the served bytes back and holds them against what was staged; after Commit, while the engine runs. Throws
  // kCorrupt when they differ: the engine is torn() then.
  void VerifyServed();

  // What users of layerwise reload know, call by call. Under kUndo and kInPlace no forward pass may run from
  // initialize_layerwise_reload until finalize_layerwise_processing has returned, or any of them has thrown: layers are
  // written as they become whole.
  void record_metadata_for_reloading();
  void initialize_layerwise_reload(std::vector<TensorSpec> specs = {});
  // Any part of the weights, any number of times. Returns the names that were loaded.
  std::set<std::string> load_weights(WeightsIterator& weights);
  // Throws, naming every missing tensor, unless all of them came exactly once; else commits.
  ReloadReport finalize_layerwise_processing();

  const std::optional<Version>& version() const;  // served now; empty before the first commit, and while torn
  const std::optional<Torn>& torn() const;
  const ReloadReport& report() const;  // of the latest reload, also of one that failed
  // Those that the engine handed over, each as its tensor alone where the layout pads or transposes it.
  const CapturedBuffers& captured() const;
  // What is staged: what AdoptStaged needs to know after a crash.
  const Version& staged_version() const;
  // For a restarted rank whose staging memory survived: takes it as staged, whole, as that version. kStaged alone.
  void AdoptStaged(const Version& version);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
