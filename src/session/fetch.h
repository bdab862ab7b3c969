// The receiving half of a session: one rank takes one version from one publisher. The publishing half is offer.h;
// src/wire/FORMAT.md has the frames. Knows nothing of plans: it moves the regions of a schedule, checks their digests,
// and hands them to a sink.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layercast/memory.h"
#include "layercast/version.h"
#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/tensor/axis_amax.h"
#include "src/tensor/manifest.h"
#include "src/tensor/region.h"
#include "src/transport/channel.h"
#include "src/wire/schedule.h"

namespace layercast {

enum class PublishMode : std::uint8_t { kSnapshot, kStream };

// Who is receiving; in the handshake, in the publisher's log and in its errors.
struct ReceiverIdentity {
  std::string engine;         // stable name of the engine
  std::uint64_t attempt = 0;  // grows with every reload of this engine; messages of older attempts are dropped
  int rank = 0;
  int ranks = 1;  // of the engine
};

struct FetchOptions {
  // The transports to choose from; they outlive the session, and are kept for the next one.
  std::span<const std::unique_ptr<Transport>> transports;
  std::string channel;    // "shm", "zmq", "inproc": that one or an error; empty: the best that both ends have
  std::size_t slots = 4;  // chunks under way at once: the credits of this receiver
  MemoryResource* memory = nullptr;              // of the slots of a copying channel; null: host memory
  std::chrono::milliseconds peer_timeout{5000};  // silence of a publisher that counts as its loss
};

// Takes what arrives. Called on the fetching thread.
class FetchSink {
 public:
  virtual ~FetchSink() = default;
  // Streams only: the tensor's largest magnitude and digest, before the first of its chunks (a snapshot's are in its
  // manifest). Called for every tensor of the manifest, also for those that the schedule wants nothing of.
  virtual void OnTensor(std::uint32_t tensor, float amax, const Digest& digest) = 0;
  // For each tensor whose magnitudes amax_requests asked for, before the first of its chunks.
  virtual void OnAxisAmax(std::uint32_t tensor, std::span<const float> amax) = 0;
  // Chunk number `chunk` of the schedule, one view per region; the views are valid until the call returns, or with an
  // attaching channel until the session is closed. Its digest has been checked.
  virtual void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) = 0;
};

struct FetchStats {
  std::string channel;
  std::uint64_t bytes = 0;  // of chunks, as received
  std::uint64_t chunks = 0;
  std::uint64_t tensors = 0;
  double receive_seconds = 0;  // waiting for chunks and taking them, the sink's work not counted
  double verify_seconds = 0;   // digests
};

// Resource; one thread only (plus a heartbeat of its own inside). Every wait has a deadline, and its error names the
// publisher and the stage.
class FetchSession {
 public:
  // Connects, shakes hands, opens the version (`step` of `lineage`, or the newest) and gets its manifest. Throws
  // kUnavailable, kDeadlineExceeded, kNotFound (an unknown or evicted version: names the ones there are), kUnsupported
  // (protocol versions or channel).
  static std::unique_ptr<FetchSession> Open(const std::string& endpoint, const ReceiverIdentity& self,
                                            const std::string& lineage, std::optional<std::uint64_t> step,
                                            const FetchOptions& options, FailPoints& failpoints, Deadline deadline);
  virtual ~FetchSession() = default;

  virtual const Manifest& manifest() const = 0;
  virtual PublishMode mode() const = 0;
  virtual const std::string& channel() const = 0;

  // Moves the whole schedule into the sink: in its order from a snapshot, in the publisher's from a stream. In a
  // stream's schedule no chunk holds regions of two tensors. Returns when every chunk was delivered once and every
  // digest matched; throws kCorrupt naming chunk, tensor, expected and got. `amax_requests`: by tensor, each once.
  virtual FetchStats Fetch(const Schedule& schedule, std::span<const AmaxRequest> amax_requests, FetchSink& sink,
                           Deadline deadline) = 0;
  // Partial figures of a Fetch that threw.
  virtual FetchStats stats() const = 0;
  // Says that this rank needs the version's memory no longer. Also done by the destructor.
  virtual void Close() noexcept = 0;
};

}  // namespace layercast
