// The receiving half of a session: one rank takes one version from those who publish it, mostly one publisher, or each
// rank of a trainer that is sharded. The publishing half is offer_service.h; src/wire/FORMAT.md has the frames. Knows
// nothing of plans: it moves the regions of a schedule, checks their digests, and hands them to a sink.
//
// Tensors are numbered through all publishers' manifests, in the order of their ranks: with one publisher, as in its
// manifest.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <vector>

#include "layercast/memory.h"
#include "layercast/report.h"
#include "layercast/version.h"
#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/base/worker_pool.h"
#include "src/session/channel_chooser.h"
#include "src/session/chunk_memory.h"
#include "src/tensor/axis_amax.h"
#include "src/tensor/manifest.h"
#include "src/tensor/region.h"
#include "src/wire/schedule.h"

namespace layercast {

class Relay;

enum class PublishMode : std::uint8_t { kSnapshot, kStream };

// Who is receiving; in the handshake, in the publisher's log and in its errors.
struct ReceiverIdentity {
  std::string engine;         // stable name of the engine
  std::uint64_t attempt = 0;  // grows with every reload of this engine; messages of older attempts are dropped
  int rank = 0;
  int ranks = 1;  // of the engine
};

// What each publisher's manifest was laid out like, by endpoint: the next one's is probably the same.
using LayoutsByPublisher = std::map<std::string, std::shared_ptr<const ManifestLayout>>;

struct FetchOptions {
  ChannelChooser* channels = nullptr;     // outlives the session, and is kept for the next one
  LayoutsByPublisher* layouts = nullptr;  // null: not remembered. Outlives the session, and is kept for the next one
  std::string channel;  // "shm", "zmq", ...: that one or an error; empty: the fastest that both ends have
  bool measure = true;  // the channels that there are, before one is chosen
  // Chunks under way at once: the credits of this receiver, shared by its publishers (but for a few each). They are
  // what the wire brings while a layer is finished, so that it does not stand still.
  std::size_t slots = 16;
  WorkerPool* pool = nullptr;        // shares copying out of views that a channel hands out; null: one thread does it
  MemoryResource* memory = nullptr;  // of the host, for slots of a copying channel; null: as it comes
  ChunkMemory* device = nullptr;     // slots there instead, of channels that write to it; outlives the session
  Relay* relay = nullptr;            // serves on what is taken; null: nothing is. Outlives the session
  std::chrono::milliseconds peer_timeout{5000};  // silence of a publisher that counts as its loss
  std::stop_token stop{};                        // asked for: every wait ends in kCancelled soon (Deadline::kLook)
};

// The data channel of a session. Value.
struct ChannelUse {
  std::string name;
  std::string lane;            // FetchingEnd::lane
  std::string reason;          // why it was chosen
  double probed_gb_per_s = 0;  // what it could do when it was chosen; 0: not measured
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
  // Chunk number `chunk` of the schedule, one view per region, which are valid until the call returns. Digests have
  // been checked.
  virtual void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) = 0;
};

struct FetchStats {
  ChannelUse channel;       // "shm, zmq" where publishers are reached by different ones
  std::uint64_t bytes = 0;  // of chunks, as received
  std::uint64_t chunks = 0;
  std::uint64_t regions = 0;  // of chunks: runs of bytes and of equal rows
  std::uint64_t tensors = 0;
  double receive_seconds = 0;              // waiting for chunks and taking them, the sink's work not counted
  double verify_seconds = 0;               // digests
  std::vector<PublisherShare> publishers;  // by rank

  double gb_per_s() const {
    const double seconds = receive_seconds + verify_seconds;
    return seconds > 0 ? static_cast<double>(bytes) * 1e-9 / seconds : 0;
  }
};

// Resource; one thread only. Every wait has a deadline, and its error names the publisher and the stage. While it waits
// for one publisher, it sees that all others are there.
class FetchSession {
 public:
  // Connects, shakes hands, opens the version (`step` of `lineage`, or the newest of the first publisher) and gets the
  // manifests. Throws kUnavailable, kDeadlineExceeded, kNotFound (an unknown or evicted version: names the ones there
  // are), kUnsupported (protocol versions or channel; publishers of streams and of snapshots), and what ByRank does.
  static std::unique_ptr<FetchSession> Open(std::span<const std::string> endpoints, const ReceiverIdentity& self,
                                            const std::string& lineage, std::optional<std::uint64_t> step,
                                            const FetchOptions& options, FailPoints& failpoints, Deadline deadline);
  virtual ~FetchSession() = default;

  // By rank: what each publisher has of the version, and where it is.
  virtual const std::vector<Manifest>& manifests() const = 0;
  virtual std::vector<std::string> endpoints() const = 0;
  virtual PublishMode mode() const = 0;
  virtual const ChannelUse& channel() const = 0;

  // Moves the whole schedule into the sink: in its order from a snapshot, in the publisher's from a stream. In a
  // stream's schedule no chunk holds regions of two tensors. Returns when every chunk was delivered once and every
  // digest matched; throws kCorrupt naming chunk, tensor, expected and got. Several publishers' parts of a chunk are
  // under way at once. `amax_requests`: by tensor, each once.
  virtual FetchStats Fetch(const Schedule& schedule, std::span<const AmaxRequest> amax_requests, FetchSink& sink,
                           Deadline deadline) = 0;
  // Partial figures of a Fetch that threw.
  virtual FetchStats stats() const = 0;
  // Says that this rank needs the version's memory no longer. Also done by the destructor.
  virtual void Close() noexcept = 0;
};

}  // namespace layercast
