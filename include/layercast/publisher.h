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
#include <vector>

#include "layercast/checkpoint_source.h"
#include "layercast/export.h"
#include "layercast/tensor.h"
#include "layercast/version.h"
#include "layercast/weights_iterator.h"

namespace layercast {

// What is published: the tensors' specs, known before any byte is, and a way to walk them.
struct LAYERCAST_PUBLIC Weights {
  // A walk must yield exactly these, in any order. May be empty for a snapshot, which learns them as it walks.
  std::vector<TensorSpec> specs;
  // For each spec the part of its tensor that it describes; empty: all are whole. What a walk yields has the same parts
  // (NamedTensor::part). May be empty for a snapshot, as specs may.
  std::vector<std::optional<TensorPart>> parts{};
  // Starts a walk. With names, it goes in their order, which only a source that gives tensors by name can do. Called
  // once for a snapshot, and for a stream once for each engine that takes it. A source that can be walked only once
  // throws kFailedPrecondition the second time.
  std::function<std::unique_ptr<WeightsIterator>(std::span<const std::string> order)> walk;
  // True: the tensors' memory stays unchanged until the version is released, so it may be sent from where it lies.
  bool borrowed = false;

  // A checkpoint, in the order of its files. Given the path alone, its format is detected.
  static Weights FromCheckpoint(const CheckpointSource& source);
  static Weights FromCheckpoint(const std::string& path);
  // An iterator that is already there: walked once.
  static Weights Once(std::vector<TensorSpec> specs, std::unique_ptr<WeightsIterator> weights,
                      std::vector<std::optional<TensorPart>> parts = {});
};

enum class PublishAs : std::uint8_t { kSnapshot, kStream };

struct PublisherOptions {
  std::string endpoint = "tcp://127.0.0.1:0";  // control link; port 0 picks one
  bool allow_remote = false;                   // an address beyond loopback is refused without it
  std::size_t retained_versions = 2;           // kept for late joiners; older ones are evicted
  // Evicted versions live on for the engines that read them: so many of them, until another version is published. Then
  // the readers of the oldest are refused, by an error that names it, and its memory is free. So there are never more
  // than retained_versions + evicted_versions + 1.
  std::size_t evicted_versions = 2;
  // How long the readers of a version that was evicted or withdrawn may take; then they are refused too.
  std::chrono::milliseconds eviction_time{600'000};
  std::size_t threads = 2;  // for copying, amax and digests
  // The most bytes of streams that may wait for receivers; beyond that the walks wait. Engines that take a stream at
  // the same time have equal shares; an engine keeps what waits for it when another begins, so that n engines have at
  // most 1 + 1/2 + ... + 1/n of it (of 32, four times as much). One tensor may always wait for each. More than 32
  // engines take turns.
  std::uint64_t stream_window_bytes = 256U << 20;
  std::chrono::milliseconds peer_timeout{5000};
  // The channels that engines may choose from ("shm", "zmq"). Empty: all that work here, except "cuda_ipc".
  std::vector<std::string> channels{};
  std::size_t nccl_fleet = 1;  // ranks that take the same over `nccl` and are served together: 1 to 64
};

struct PublishOptions {
  std::string lineage;
  std::uint64_t step = 0;
  PublishAs mode = PublishAs::kSnapshot;
  // Streams: walk in the order of the receivers' schedules (layer order) instead of the walk's own. Needs a source that
  // gives tensors by name, such as a checkpoint.
  bool layer_order = false;
  // {rank, ranks} of a sharded trainer. Each rank publishes the tensors, and parts of tensors, that it holds
  // (NamedTensor::part): every element by exactly one rank, and all ranks as snapshots or all as streams.
  VersionPart part{};
};

// Follows one published version. Value; copies follow the same version. Thread-safe.
class LAYERCAST_PUBLIC PublishedVersion {
 public:
  const Version& version() const;
  // From now on no engine may begin to take it. A version is also withdrawn when enough newer ones were published.
  void Withdraw() const;
  // Waits until it is withdrawn and nobody reads it any more; borrowed memory may change then. False when the time
  // passes first. True at once when the publisher is gone. Readers end within PublisherOptions::eviction_time.
  bool WaitReleased(std::chrono::milliseconds timeout) const;
  // Sessions of receivers that are open now.
  int readers() const;

 private:
  friend class Publisher;
  struct LAYERCAST_HIDDEN State;
  explicit PublishedVersion(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;  // the second owner is the publisher
};

// Resource; thread-safe.
class LAYERCAST_PUBLIC Publisher {
 public:
  explicit Publisher(const PublisherOptions& options);
  ~Publisher();
  Publisher(const Publisher&) = delete;
  Publisher& operator=(const Publisher&) = delete;

  // "tcp://127.0.0.1:41234": what engines are told.
  std::string endpoint() const;

  // Snapshot: copies (or borrows) every tensor, checks it, and offers the version. What was copied may change when this
  // returns. Stream: offers the version; each session of receivers walks it.
  // Device memory: a snapshot's tensor stays on its device, in a copy of its own, if all of the publisher's channels
  // reach device memory (PublisherOptions::channels). Otherwise, and in a stream, it is brought to the host. It must be
  // written by the time that a walk yields it: no CUDA stream of the trainer's is waited for.
  // Throws kCorrupt, naming tensor and index, on NaN or infinity. kInvalidArgument on a step that is not newer than the
  // lineage's last, a repeated name, a part that leaves its tensor, a tensor without bytes, or no tensor. kUnsupported
  // on a tensor in device memory if the build has no CUDA, or if it is borrowed and a channel does not reach it.
  PublishedVersion Publish(const PublishOptions& options, Weights weights);

 private:
  class LAYERCAST_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
