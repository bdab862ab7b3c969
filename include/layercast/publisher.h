// The trainer's side: publishes versions that engines take. One Publisher per training process; where each of several
// holds a part of the weights, each publishes its part, and engines put them together.
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
  // In any order; a walk must yield exactly these. May be empty for a snapshot, which learns them as it walks.
  std::vector<TensorSpec> specs;
  // Of each spec, which part of its tensor it is of; empty: all are whole. What a walk yields has the same
  // (NamedTensor::part); may be empty for a snapshot, as specs may.
  std::vector<std::optional<TensorPart>> parts{};
  // Starts a walk; with names, in their order, which only a source that gives tensors by name can do. Called once for a
  // snapshot; for a stream once for each engine that takes it: a source that can be walked only once throws
  // kFailedPrecondition the second time.
  std::function<std::unique_ptr<WeightsIterator>(std::span<const std::string> order)> walk;
  // The tensors' memory stays unchanged until the version is released, so that it may be sent from where it lies.
  bool borrowed = false;

  // A checkpoint, in the order of its files. Of the path alone, its format is found.
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
  std::size_t retained_versions = 2;           // snapshots kept for late joiners; older ones go when nobody reads them
  std::size_t threads = 2;                     // for copying, amax and digests
  std::uint64_t stream_window_bytes = 256U
                                      << 20;  // tensors of a stream that may wait for receivers: the rest pushes back
  std::chrono::milliseconds peer_timeout{5000};
  std::vector<std::string> channels{};  // that engines may choose from ("shm", "zmq"); empty: all that this build has
  std::size_t nccl_fleet = 1;           // ranks that take the same over `nccl` and are served together: 1 to 64
};

struct PublishOptions {
  std::string lineage;
  std::uint64_t step = 0;
  PublishAs mode = PublishAs::kSnapshot;
  // Streams: the order of the receivers' schedules (layer order) instead of the walk's own. Needs a source that gives
  // tensors by name, i.e. a checkpoint.
  bool layer_order = false;
  // {rank, ranks} of a trainer whose ranks publish a version between them, each the tensors and parts of tensors that
  // it holds (NamedTensor::part): every element by one of them. All of them snapshots, or all streams.
  VersionPart part{};
};

// Follows one published version. Value; copies follow the same version. Thread-safe.
class LAYERCAST_PUBLIC PublishedVersion {
 public:
  const Version& version() const;
  // No engine may begin to take it from now on. A version is also withdrawn when enough newer ones were published.
  void Withdraw() const;
  // Until it is withdrawn and nobody reads it any more: borrowed memory may change then. False when the time passes
  // first. True at once when the publisher is gone.
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

  // Snapshot: copies (or borrows) every tensor, checks it, and offers the version; what was copied may change when this
  // returns. What lies on a device stays there, in a copy of its own, where all of the publisher's channels reach
  // device memory (PublisherOptions::channels); else, and in a stream, it is brought to the host. It must be written by
  // the time that a walk yields it: no stream of the trainer's is waited for. Stream: offers the version; each session
  // of receivers walks it. Throws kCorrupt naming tensor and index on NaN or infinity, kInvalidArgument on a step that
  // is not newer than the lineage's last, a repeated name, a part that leaves its tensor, a tensor without bytes, or no
  // tensor; kUnsupported on a tensor in device memory where the build has no CUDA, or where it is borrowed and a
  // channel does not reach it.
  PublishedVersion Publish(const PublishOptions& options, Weights weights);

 private:
  class LAYERCAST_HIDDEN Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
