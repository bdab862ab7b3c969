// The trainer's side: publishes versions that engines take. One Publisher per training process. In a sharded trainer
// each rank publishes the part that it holds, and engines put the parts together.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layercast/checkpoint_source.h"
#include "layercast/export.h"
#include "layercast/keys/key_options.h"
#include "layercast/noise/noise.h"
#include "layercast/store/store_options.h"
#include "layercast/tensor.h"
#include "layercast/version.h"
#include "layercast/weights_iterator.h"

namespace layercast {

// What is published: the tensors' specs, known before any byte is, and a way to walk the tensors. Value; what `walk`
// refers to must live until the walks are over.
struct LAYERCAST_PUBLIC Weights {
  // The specs of exactly the tensors that a walk yields, in any order. They may be empty for a snapshot, which learns
  // them as it walks.
  std::vector<TensorSpec> specs;
  // For each spec, the part of its tensor that it describes; empty: all specs are of whole tensors. Several specs may
  // be parts of one tensor, which begin at different offsets and share no element. A walk yields the same parts, in any
  // order (NamedTensor::part). May be empty for a snapshot whose specs are.
  std::vector<std::optional<TensorPart>> parts{};
  // Starts a walk: in the order of the names in `order`, which only a source that gives tensors by name can do, or, if
  // there are none, in the source's own. Called once for a snapshot, and for a stream once for each engine that takes
  // it. A source that can be walked only once throws kFailedPrecondition the second time.
  std::function<std::unique_ptr<WeightsIterator>(std::span<const std::string> order)> walk;
  // The text of the model's config.json, for engines to hold against their own: tensors that fit would be computed with
  // wrongly if, say, rope_theta were another. It goes with the version, but is no part of its digest. May name some
  // fields alone (then without architectures and model_type), and has at most 1 MiB. Empty: engines compare nothing.
  std::string config{};
  // True: the tensors' memory stays unchanged until the version is released, so it may be sent from where it lies.
  bool borrowed = false;

  // A checkpoint's tensors, walked in the order of its files, and its configuration. If only the path is given, the
  // format is detected.
  static Weights FromCheckpoint(const CheckpointSource& source);
  static Weights FromCheckpoint(const std::string& path);
  // The tensors of an iterator, which can be walked only once. Throws kInvalidArgument if there is none.
  static Weights Once(std::vector<TensorSpec> specs, std::unique_ptr<WeightsIterator> weights,
                      std::vector<std::optional<TensorPart>> parts = {});
};

// Value.
struct PublisherOptions {
  std::string endpoint = "tcp://127.0.0.1:0";  // of the control link; port 0 picks a free one
  KeyOptions keys{};                           // whom it admits; without any, an address beyond loopback is refused
  std::size_t retained_versions = 2;           // kept, 1 or more; older ones that are not pinned are evicted
  // Older versions are evicted while all that are kept take more memory than that, but for the newest and those that
  // are pinned. What several versions have alike counts once, and is there once. 0: no bound.
  std::uint64_t retained_bytes = 0;
  // How many evicted versions live on for the engines that still read them. If there are more when another version is
  // published, the readers of the oldest are refused, by an error that names the version, and its memory is freed. So
  // there are never more than retained_versions + evicted_versions + 1 versions.
  std::size_t evicted_versions = 2;
  // How long the readers of a version that was evicted or withdrawn may still take. After that they are refused.
  std::chrono::milliseconds eviction_time{600'000};
  std::size_t threads = 2;  // for copying, amax and digests: 1 to 1024
  // How many bytes of streams may wait for receivers. When so many do, the walks wait. Engines that take a stream at
  // the same time have equal shares of it. An engine keeps what already waits for it when another one begins, so n
  // engines together have at most 1 + 1/2 + ... + 1/n times this (32 engines: four times). One tensor may always wait
  // for each engine. If more than 32 engines take streams, they take turns.
  std::uint64_t stream_window_bytes = 256U << 20;
  std::chrono::milliseconds peer_timeout{5000};
  // The data channels that engines may choose from ("shm", "zmq"). Empty: all that work here, except "cuda_ipc".
  std::vector<std::string> channels{};
  // Folders: what lies in them, or is one of them, may be published by whoever reaches the endpoint
  // (RemotePublisher::PublishFolder). Empty: nothing may.
  std::vector<std::string> allow_paths{};
  // The most bytes of all engines' messages together that may wait to be handled, or be unfinished. Beyond that the
  // connections of whoever has most of them are cut.
  std::uint64_t connection_budget = 256U << 20;
  // "HOST:PORT" where Prometheus is answered (docs/operations.md); port 0 picks one; empty: nowhere. Nobody is asked
  // for a key there, so an address beyond loopback is refused unless `metrics_open`, or keys.insecure.
  std::string metrics_bind{};
  bool metrics_open = false;
  // Takes the spans of each engine's sync, once it is over, as the body of a POST to /v1/traces of a collector of
  // OpenTelemetry's (OTLP, in JSON). Called on a thread of the publisher's, which must not wait. May be empty.
  std::function<void(std::string otlp)> on_trace{};
  // Where each version is also written, on a thread of the publisher's: engines take it from there when no publisher
  // lives. A stream is written by its walk, the first that an engine takes whole. Of a sharded trainer each rank writes
  // its part, and the version is there once all are; `run` must be named then. A publisher that is started anew with
  // the store keeps what was kept, but for parts, and goes on with its runs.
  StoreOptions store{};
  std::size_t nccl_fleet = 1;  // how many ranks that take the same bytes over `nccl` are served together: 1 to 64
};

// Value.
struct PublishOptions {
  std::string lineage;
  std::uint64_t step = 0;
  PublishMode mode = PublishMode::kSnapshot;
  // For streams: walks in the order of the receivers' schedules (layer order) instead of the source's own. Needs a
  // source that gives tensors by name, such as a checkpoint.
  bool layer_order = false;
  // This rank of a sharded trainer, {rank, ranks}. Each rank publishes the tensors, and parts of tensors, that it holds
  // (NamedTensor::part). Exactly one rank must publish each element, and either all ranks publish snapshots or all
  // publish streams.
  VersionPart part{};
  // Which run of the trainer this is, the same on all its ranks, and another one whenever the whole trainer is started
  // anew: engines take the parts of one version from one run, never what two have published under one name. A name like
  // a lineage's; empty: unknown, which engines accept of all parts or of none. Not given: RunFromEnvironment(). It is
  // no part of the version. A run that begins at a step which its lineage has already, as one that was resumed does,
  // *shadows* that version and all later ones: `lineage@step` then means the new run's, and the old ones go by their
  // digests. A version without a run counts to the lineage's latest.
  std::optional<std::string> run{};
  // What engines add to their norms when they install the version (noise/noise_stages.h); the same on all ranks
  // of a sharded trainer. It goes with the version, but is no part of its digest: what is published is clean. Not of a
  // version of adapters alone.
  std::optional<Noise> noise{};
};

// The run that this process belongs to, as its launcher names it: TORCHELASTIC_RUN_ID (but not "none", which torchrun
// calls every run without an --rdzv-id), else SLURM_JOB_ID, else empty. Throws kInvalidArgument, naming the variable,
// if that is no name.
LAYERCAST_PUBLIC std::string RunFromEnvironment();

// A version that a publisher keeps, or that is evicted and still read. Value.
struct KeptVersion {
  Version version;
  std::string run;  // PublishOptions::run; empty: unknown
  PublishMode mode = PublishMode::kSnapshot;
  std::uint64_t bytes = 0;
  std::uint64_t added_bytes = 0;  // of the publisher's memory: what no older version in the list has; 0 if borrowed
  int readers = 0;                // sessions that are open now
  std::chrono::system_clock::time_point published;
  bool pinned = false;
  bool evicted = false;
  bool shadowed = false;  // a later run of the lineage has taken its step over: it goes by its digest alone
  Durability durability = Durability::kNone;
};

// Value.
struct LAYERCAST_PUBLIC VersionList {
  std::uint64_t retained_versions = 0;  // as in PublisherOptions
  std::uint64_t retained_bytes = 0;
  std::uint64_t memory_bytes = 0;     // that all of them take together
  std::vector<KeptVersion> versions;  // oldest first

  // The version called "run-17@42", "run-17@42:0123456789abcdef", or by 8 or more digits of its digest. Throws
  // kNotFound, naming those that there are, and kInvalidArgument if digits are of several.
  const KeptVersion& Named(std::string_view text) const;
};

struct PublishedState;

// Follows one published version. Value; copies follow the same version. Thread-safe.
class LAYERCAST_PUBLIC PublishedVersion {
 public:
  const Version& version() const;
  // PublishOptions::run, or what stood for it; empty: unknown.
  const std::string& run() const;
  // From now on no engine may begin to take the version. Publishing PublisherOptions::retained_versions newer ones
  // withdraws it too.
  void Withdraw() const;
  // Waits until the version is withdrawn and nobody reads it any more; borrowed memory may change then. Returns false
  // if the time passes first, and true at once if the publisher is gone. Once the version is withdrawn, readers end
  // within PublisherOptions::eviction_time.
  bool WaitReleased(std::chrono::milliseconds timeout) const;
  // How many sessions of receivers are open now.
  int readers() const;
  // Waits until the version is in the publisher's store, or left out of it; the log says why. Returns whether it is
  // there. False if the time passes first, or the publisher has no store or is gone.
  bool WaitStored(std::chrono::milliseconds timeout) const;

 private:
  friend class Publisher;
  explicit PublishedVersion(std::shared_ptr<PublishedState> state) : state_(std::move(state)) {}
  std::shared_ptr<PublishedState> state_;  // the second owner is the publisher
};

// Resource; thread-safe. A child that was forked cannot use it: Publish throws kFailedPrecondition there.
class LAYERCAST_PUBLIC Publisher {
 public:
  // Throws kInvalidArgument on an option out of its bounds or an endpoint that is none, kUnsupported on a channel that
  // this build or machine does not have, and kUnavailable if an address cannot be bound.
  explicit Publisher(const PublisherOptions& options);
  // Ends all sessions, once what was published is in its store, if it has one (for ten minutes at most); returns once
  // no walk of a stream runs any more, however long its iterator takes.
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // The address to give to engines: "tcp://127.0.0.1:41234".
  std::string endpoint() const;
  // "127.0.0.1:41234", where metrics are served; empty: nowhere.
  std::string metrics_address() const;

  // For a snapshot, copies (or borrows) every tensor, checks it, and offers the version. What was copied may change
  // once this returns. For a stream, offers the version and returns; each engine that takes it causes a walk. One call
  // waits for another's walk to end.
  // Device memory: a snapshot's tensor stays on its device, in a copy of its own, if all of the publisher's channels
  // reach device memory (PublisherOptions::channels). Otherwise, and in a stream, it is brought to the host. Its values
  // must be complete when a walk yields it, for Publish waits for none of the trainer's CUDA streams.
  // Throws kCorrupt, naming tensor and index, on NaN or infinity; kInvalidArgument on a lineage or a run that is not
  // UTF-8 without control characters, of at most 1024 bytes, a config that is too long, a step that is not newer than
  // the last of its run, a run that another has followed, a repeated name (but for parts of a tensor that are apart), a
  // part that leaves its tensor, a tensor without bytes, no tensor, or noise whose sigma is no finite number
  // above 0; kFailedPrecondition if the walk of a Publish
  // calls it; kUnsupported on noise of a version of adapters alone, on a tensor in device memory if the build has no
  // CUDA, or if it is borrowed and a channel does not reach it.
  PublishedVersion Publish(const PublishOptions& options, Weights weights);

  // What is kept, and evicted versions that are still read.
  VersionList Versions() const;
  // A version that is pinned is not evicted, and does not count among the retained ones; 16 may be. Throws kNotFound,
  // naming what is kept.
  void Pin(const Version& version, bool pin = true);
  // No engine may begin to take the version any more; when nobody reads it, its memory is freed. Throws kNotFound, and
  // kFailedPrecondition if it is pinned.
  void Evict(const Version& version);

 private:
  class LAYERCAST_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

// A publisher of another process, by its endpoint. Value. Every call throws kUnavailable or kDeadlineExceeded, naming
// it, and what the publisher refuses with.
class LAYERCAST_PUBLIC RemotePublisher {
 public:
  // `keys` are those by which the publisher admits this process.
  explicit RemotePublisher(std::string endpoint, KeyOptions keys = {},
                           std::chrono::milliseconds timeout = std::chrono::milliseconds(300'000))
      : endpoint_(std::move(endpoint)), keys_(std::move(keys)), timeout_(timeout) {}

  VersionList Versions() const;
  // As Publisher's; they return what is kept then.
  VersionList Pin(const Version& version, bool pin = true) const;
  VersionList Evict(const Version& version) const;
  // Has it publish a checkpoint that it can read, by its absolute path, and waits until the version is offered. Of the
  // options, lineage (empty: that of the publisher's newest version), step and run are heeded.
  Version PublishFolder(const CheckpointSource& folder, const PublishOptions& options) const;

 private:
  std::string endpoint_;
  KeyOptions keys_;
  std::chrono::milliseconds timeout_;
};

}  // namespace layercast
