// The engine's side, on one rank: takes new weights and writes them into the engine's captured buffers. Used by the
// built-in engine, and by an engine of your own.
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
#include "layercast/progress.h"
#include "layercast/report.h"
#include "layercast/version.h"
#include "layercast/weight_layout.h"
#include "layercast/weights_iterator.h"

namespace layercast {

// How the engine's weights are quantized. Value.
struct QuantizationConfig {
  // "none", "fp8_per_tensor", "fp8_per_channel", "fp8_per_block", "mxfp8", "mxfp4", "nvfp4" or "int8_per_channel"; or
  // "checkpoint": each layer keeps the form that config.json says it is in, and stays in full precision if it says
  // none.
  std::string recipe = "none";
  bool power_of_two_scales = false;  // for fp8_per_block: scales are rounded up to powers of two
  // What becomes of a layer that a checkpoint on disk holds quantized, if its form is not the recipe's or this rank's
  // part cannot be cut out of it. True: it is dequantized to the model's dtype and quantized anew. False: it is
  // refused.
  bool requantize = false;
  WeightLayout layout{};  // of the engine's own memory only: what is published, exported or lent does not have it
};

// Where new weights come from. Value; moved into a reload.
struct LAYERCAST_PUBLIC ReloadSource {
  enum class Kind : std::uint8_t { kOrigin, kPath, kPublisher, kEngine, kIterator, kDummy };
  Kind kind = Kind::kOrigin;
  CheckpointSource checkpoint;         // kPath
  std::vector<std::string> endpoints;  // of a publisher, of all ranks of a sharded trainer, or of a rank that lends
  std::string lineage;                 // of the version; empty: any of the publisher's
  std::optional<std::uint64_t> step;   // of the version; empty: the publisher's newest
  std::unique_ptr<WeightsIterator> iterator;
  std::vector<TensorSpec> specs;  // of the iterator's tensors; empty: those of the last load
  std::uint64_t seed = 0;         // kDummy
  Version version;                // kEngine: what the lending engine serves
  Digest served_digest;           // kEngine: of the lending rank's buffers; this rank's must have it afterwards
  // False: the tensors are in kernel format, that is, they have the names, shapes and dtypes of this rank's captured
  // buffers ("...qkv_proj.weight_scale"). They are copied as they are, and checked just as strictly.
  bool is_checkpoint_format = true;
  // True: the tensors, in checkpoint format, may be a part of the model. A layer that gets none keeps the bytes that it
  // serves, and so its digests. A layer that gets some needs all of its tensors, on whatever rank they end up. The
  // engine then serves the whole under the name of this latest version.
  bool partial = false;
  // With `partial`: paths of layers ("model.layers.0.mlp.down_proj"), or of modules above them, that may be left out.
  // No others may. Empty: any may.
  std::vector<std::string> may_keep{};
  // kIterator: the text of the config.json of the model whose tensors come, or some of its fields; empty: not known.
  // Other sources bring their own (docs/checkpoints.md).
  std::string config{};
  // A source whose configuration differs from the engine's in what is computed is refused: its tensors may fit, but the
  // engine would compute wrongly with them. True: it is taken, and ReloadReport::config_changes lists what differs.
  bool allow_config_change = false;
};

// Re-reads the last whole checkpoint that was committed from a path.
LAYERCAST_PUBLIC ReloadSource FromOrigin();
LAYERCAST_PUBLIC ReloadSource FromPath(std::string path, bool is_checkpoint_format = true);
// Tensors are taken to be in kernel format if the load format is `sharded_state`, or `auto` finds it to be.
LAYERCAST_PUBLIC ReloadSource FromCheckpoint(CheckpointSource checkpoint);
LAYERCAST_PUBLIC ReloadSource FromPublisher(std::string endpoint, std::string lineage = "",
                                            std::optional<std::uint64_t> step = std::nullopt);
// For a sharded trainer: `endpoints`, in any order, are those of all its ranks, each of which publishes what it holds.
LAYERCAST_PUBLIC ReloadSource FromPublishers(std::vector<std::string> endpoints, std::string lineage = "",
                                             std::optional<std::uint64_t> step = std::nullopt);
// Takes the kernel tensors, derived ones included, of the same rank of another engine of the same layout, under the
// version that it serves. That engine's `lend_weights` call returns the arguments (engine_side/server/RPC.md).
LAYERCAST_PUBLIC ReloadSource FromEngineRank(std::string endpoint, Version version, Digest served_digest);
LAYERCAST_PUBLIC ReloadSource FromIterator(std::unique_ptr<WeightsIterator> iterator,
                                           std::vector<TensorSpec> specs = {}, bool is_checkpoint_format = true);

// Random weights of that seed, for an engine that starts without a checkpoint. The version is {"dummy", seed}.
LAYERCAST_PUBLIC ReloadSource FromDummy(std::uint64_t seed = 0);

// Value; the memory resources are borrowed.
struct ReceiverOptions {
  // The engine's name, in handshakes and errors. All its ranks have the same, and no other engine: a publisher begins a
  // stream when as many ranks of one name have asked for it as the engine has.
  std::string engine = "engine";
  std::string channel{};    // forces a data channel; a peer without it is an error. Empty: the fastest
  std::size_t threads = 2;  // for kernels and copies
  std::uint64_t chunk_bytes = 4U << 20;
  // The most bytes that incomplete layers may hold; 0: no bound. A stream whose order would exceed it fails with
  // kResourceExhausted, naming the layers that hold the memory. A snapshot comes in layer order, and needs the bytes of
  // one layer.
  std::uint64_t buffer_limit = 0;
  // If not empty, this rank relays: at this endpoint ("tcp://10.0.0.5:0") it serves what it takes of a snapshot to
  // receivers of the same schedule. They are told this address as it stands, except that a port of 0 picks one. The
  // rank keeps the source bytes of its share of a version, in host memory, until the next reload.
  std::string relay{};
  bool relay_remote = false;                      // `relay` may be an address that other hosts reach
  std::chrono::milliseconds timeout{300'000};     // for a whole reload
  std::chrono::milliseconds peer_timeout{5'000};  // a publisher that is silent for so long counts as lost
  CommitPolicy commit = CommitPolicy::kStaged;
  // True: pieces go straight to their kernel tensors where the recipe allows it. False: all five stages everywhere.
  bool direct = true;
  // Told how far a reload has come: whenever it enters a stage; while bytes come, for each further hundredth of them
  // and ten times a second; and once all have come and all layers are whole. Called on the thread that called the
  // receiver, within that call and under no lock. Bytes wait meanwhile. It may call Cancel and attempt of the receiver,
  // and nothing else of it. What it throws is logged, and it is then told no more of that reload, which goes on. May be
  // empty.
  std::function<void(const ReloadProgress&)> on_progress{};
  // Holds what the commit policy keeps: the staged copy, the undo log, a byte for each buffer. (The copies of buffers
  // on a device are in device memory and in pinned memory instead.) Allocated at the first reload. An engine whose
  // weights outlive its processes gives memory that does so too, and hands in the same memory again after a restart.
  // Null: host memory. Must outlive the receiver.
  MemoryResource* staging_memory = nullptr;
  // Holds layer buffers and receive slots. Null: host memory that is reused until the reload ends. Must outlive the
  // receiver.
  MemoryResource* layer_memory = nullptr;
};

// The state of an engine some of whose captured buffers hold one version, and some another. No forward pass may run
// until a whole version is committed. Value.
struct Torn {
  std::optional<Version> from;  // the version served before; empty: none, or not known to this process
  Version to;                   // the version that was being written
};

// Resource; one call at a time, except that Cancel may come at any time: a call that changes anything throws
// kFailedPrecondition during another one, and in a child that was forked. After a call that throws, the engine serves
// what it served before, or is torn(). Which of the two depends on the commit policy and the moment (docs/commit.md).
class LAYERCAST_PUBLIC Receiver {
 public:
  // `model` is this rank's tree, on meta; ModelRegistry builds one from a config.json, or the host program does.
  // `captured` has a buffer for each kernel tensor that the recipe makes of that tree's parameters. Their names and
  // shapes are in docs/models.md and engine_side/quant/RECIPES.md. The first reload refuses a table that does not fit,
  // and says for each buffer what was expected. Throws kInvalidArgument if there is no tree or it is another rank's,
  // kUnsupported for a channel that this build does not know, and whatever opening the relay throws.
  Receiver(std::unique_ptr<Module> model, ParallelConfig parallel, const QuantizationConfig& quantization,
           CapturedBuffers captured, const ReceiverOptions& options = {});
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;

  // Stage, Commit and VerifyServed in one call: all that an engine of one rank needs. Throws Error; what is served then
  // depends on the commit policy. Under kStaged, a failure before the commit leaves the old version untouched.
  ReloadReport ReloadWeights(ReloadSource source);

  // Stage and Commit are the two phases of a reload, for engines of several ranks: stage on all ranks, then commit on
  // all between two forward steps.
  // `attempt` grows with every reload of the engine and is the same on all its ranks, because a stream is walked once
  // for all of them. 0: the receiver counts.
  // Under kStaged, Stage receives and processes everything. Under kUndo and kInPlace it only finds out what the source
  // holds and checks the plan against it; Commit then receives, and writes each layer as soon as it is verified. The
  // session with a publisher is closed until then.
  void Stage(ReloadSource source, std::uint64_t attempt = 0);
  // Makes the checks that Commit begins with: the last chance to refuse before any rank commits. Optional. Throws
  // kFailedPrecondition if nothing is staged. Under kUndo and kInPlace it opens the session with the publisher again,
  // which may take until `timeout`, and throws what that throws, and kFailedPrecondition if it finds another version
  // there.
  void Prepare();
  // Writes what is staged into the captured buffers. Throws kFailedPrecondition if nothing is staged, or if the engine
  // has moved a buffer. After a failure, kStaged still has what was staged, to be committed again; kUndo has put the
  // old bytes back; kInPlace is torn() if anything was written.
  void Commit();
  // Puts back what the latest Commit overwrote, also if this rank's Commit succeeded and another rank's did not. May be
  // called until the next Stage, again after it threw, and by a new process over the same staging_memory after the old
  // one died. Ends a layerwise reload that is under way. Returns false if something was written that the policy cannot
  // put back: this rank is then torn().
  [[nodiscard]] bool RollBack();
  // Sets ReceiverOptions::channel for the reloads from now on.
  void SetChannel(std::string channel);
  // Sets ReceiverOptions::timeout for the reloads from now on.
  void SetTimeout(std::chrono::milliseconds timeout);
  // Drops what is staged or half received, and rolls back what was half written. Does nothing if there is none.
  void Abort();
  // Gives up that attempt, and all before it, for instance because another rank of the engine has failed. An attempt
  // that is still to come is given up in advance; Cancel(attempt()) is for what is under way. May be called from any
  // thread while another one is in a call. Stage throws kCancelled between two tensors or chunks, or within half a
  // second if it is waiting for a publisher; so does Commit while it receives (kUndo, kInPlace). Either throws it too
  // if it is called after Cancel. What is staged already stays until Abort drops it.
  void Cancel(std::uint64_t attempt);
  // The latest attempt, which may be under way. May be called from any thread.
  std::uint64_t attempt() const;
  // Reads the served bytes back and compares them with what was staged. Called after Commit; the engine may run. Throws
  // kCorrupt if they differ: the engine is then torn().
  void VerifyServed();

  // The next four are the calls of vLLM's layerwise reload. Under kUndo and kInPlace, layers are written as they become
  // whole. So no forward pass may run from initialize_layerwise_reload until finalize_layerwise_processing has
  // returned, or one of these calls has thrown.
  void record_metadata_for_reloading();
  void initialize_layerwise_reload(std::vector<TensorSpec> specs = {});
  // Takes any part of the weights, and may be called any number of times. Returns the names that were loaded.
  std::set<std::string> load_weights(WeightsIterator& weights);
  // Commits if all tensors came exactly once; otherwise throws, naming every missing one.
  ReloadReport finalize_layerwise_processing();

  const std::optional<Version>& version() const;  // served now; empty before the first commit, and while torn
  const std::optional<Torn>& torn() const;        // empty: the engine is not torn
  const ReloadReport& report() const;             // of the latest reload, also of one that failed
  // The buffers that the engine handed over. A buffer that the layout pads or transposes is shown as its tensor alone.
  const CapturedBuffers& captured() const;
  // The version that is staged, which AdoptStaged takes after a crash. Throws kFailedPrecondition if none is, and
  // kUnsupported unless the policy is kStaged.
  const Version& staged_version() const;
  // For a restarted rank whose staging memory (ReceiverOptions::staging_memory) survived: takes what lies there as that
  // version, staged whole. kStaged only. Throws kFailedPrecondition if what lies there is not whole, is another
  // version, or is of buffers of another layout, and kCorrupt if the bytes are no longer those that were staged.
  void AdoptStaged(const Version& version);

 private:
  class LAYERCAST_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
