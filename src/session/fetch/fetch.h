// The receiving half of a session: one rank takes one version from its publishers. Mostly there is one publisher; a
// sharded trainer has one on each rank. The publishing half is offer_service.h; src/wire/FORMAT.md has the frames. A
// fetch knows nothing of plans: it moves the regions of a schedule, checks their digests, and hands them to a sink.
//
// Tensors are numbered consecutively through all publishers' manifests, in the order of the publishers' ranks.
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

#include "layercast/transfer_cost.h"
#include "layercast/version.h"
#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/net/keys/keys.h"
#include "src/session/fetch/fetch_sink.h"
#include "src/tensor/kernels/axis_amax.h"
#include "src/tensor/manifest/manifest.h"
#include "src/wire/schedule.h"

namespace layercast {

class ChannelChooser;
class ChunkMemory;
class KeptPeers;
class MemoryResource;
class Relay;
class TraceRecorder;
class WorkerPool;
struct SourceCopy;

// Who is receiving, for the handshake, and for the publisher's log and errors. Value.
struct ReceiverIdentity {
  std::string engine;         // stable name of the engine
  std::uint64_t attempt = 0;  // grows with every reload of this engine; messages of older attempts are dropped
  int rank = 0;
  int ranks = 1;  // how many the engine has
};

// The layout of each publisher's last manifest, by endpoint. The next manifest's is probably the same.
using LayoutsByPublisher = std::map<std::string, std::shared_ptr<const ManifestLayout>>;

// Where the chunks of a session go, and who works on them. Value; borrows all.
struct FetchMemory {
  WorkerPool* pool = nullptr;        // shares copying out of views that a channel hands out; null: one thread does it
  MemoryResource* memory = nullptr;  // host memory for the slots of a copying channel; null: any
  ChunkMemory* device = nullptr;     // has the slots of channels that write to a device; outlives the session
  // Host memory for the bytes of a snapshot, which the session keeps then (FetchSession::source); null: it keeps none.
  // Nothing is relayed then. Outlives what is kept.
  MemoryResource* source = nullptr;
};

struct FetchOptions {
  ChannelChooser* channels = nullptr;     // outlives the session, and is kept for the next one
  LayoutsByPublisher* layouts = nullptr;  // null: not remembered. Outlives the session, and is kept for the next
  KeptPeers* kept = nullptr;              // has connections of earlier sessions; null: none is kept. Outlives it too
  std::string role = "publisher";         // of the peers, in errors
  Keys keys{};                            // for the control links; `channels` has its own. If some are trusted, to sign
  bool may_be_unsigned = false;           // asks for no signature, whatever keys are trusted
  std::string channel;  // "shm", "zmq", ...: that one or an error; empty: the fastest that both ends have
  // Of the version that is wanted, whatever its name means to the publisher now; all zeros: any. Of one publisher.
  Digest digest{};
  bool measure = true;  // measures the channels before one is chosen
  // How many chunks may be under way at once: the receiver's credits. Its publishers share them, but each gets a few.
  // They keep the wire busy while a layer is being finished.
  std::size_t slots = 16;
  FetchMemory into{};
  // With `into.source`: what is kept from before, which deltas may be of; null: nothing.
  std::shared_ptr<const SourceCopy> base{};
  DeltaUse delta = DeltaUse::kAuto;
  Relay* relay = nullptr;  // serves on what is taken; null: nothing is relayed. Outlives the session
  std::chrono::milliseconds peer_timeout{5000};  // a publisher that is silent for so long counts as lost
  std::stop_token stop{};                        // once requested, every wait ends in kCancelled soon (Deadline::kLook)
  TraceRecorder* trace = nullptr;                // of waits, digests and chunks; outlives the session; null: of nothing

  // Whether a version is refused unless somebody who is trusted has signed it. Its chunks then go through host memory
  // that nobody else can write.
  bool expects_signed() const { return keys.trusted() != nullptr && !may_be_unsigned; }
};

// The data channel of a session. Value.
struct ChannelUse {
  std::string name;
  std::string lane;            // FetchingEnd::lane
  std::string reason;          // why it was chosen
  double probed_gb_per_s = 0;  // what it could do when it was chosen; 0: not measured
};

struct FetchStats {
  ChannelUse channel;                      // its name is "shm, zmq" if publishers were reached by different ones
  std::string run;                         // of the trainer that has published the version; empty: not known
  std::uint64_t bytes = 0;                 // that came for the chunks received
  std::uint64_t regions = 0;               // of the chunks received: runs of bytes and of equal rows
  double receive_seconds = 0;              // waiting for chunks and taking them, without the sink's work
  double verify_seconds = 0;               // digesting
  std::vector<PublisherShare> publishers;  // by rank
  std::optional<DeltaChoice> delta;        // if the session keeps what comes

  double gb_per_s() const {
    const double seconds = receive_seconds + verify_seconds;
    return seconds > 0 ? static_cast<double>(bytes) * 1e-9 / seconds : 0;
  }
};

// Resource; one thread only. Every wait has a deadline, and its error names the publisher and the stage. While a
// session waits for one publisher, it checks that all others are there.
class FetchSession {
 public:
  // Connects, shakes hands, opens the version (`step` of `lineage`, or the first publisher's newest) and gets the
  // manifests. Throws kUnavailable, kDeadlineExceeded, kNotFound if the version is unknown or evicted (naming the ones
  // that there are), kUnsupported if protocol versions do not match, if there is no channel that both ends have, or if
  // some publishers stream and others have snapshots, and what ByRank throws.
  static std::unique_ptr<FetchSession> Open(std::span<const std::string> endpoints, const ReceiverIdentity& self,
                                            const std::string& lineage, std::optional<std::uint64_t> step,
                                            const FetchOptions& options, FailPoints& failpoints, Deadline deadline);
  virtual ~FetchSession() = default;

  // What each publisher has of the version, and where the publisher is, both by rank.
  virtual const std::vector<Manifest>& manifests() const = 0;
  virtual std::vector<std::string> endpoints() const = 0;
  // The configuration of the version's model as each publisher has sent it, by rank; empty: it sent none.
  virtual std::vector<std::string> configs() const = 0;
  virtual PublishMode mode() const = 0;

  // Where Fetch has chunks go, in place of what the options said: who opened the session, to look at what there is, may
  // have handed it on.
  virtual void TakeInto(const FetchMemory& into) = 0;
  // Moves the whole schedule into the sink: a snapshot in the schedule's order, a stream in the publisher's. No chunk
  // of a stream's schedule may hold regions of two tensors. Returns when every chunk was delivered once and every
  // digest matched. Throws kCorrupt, naming chunk, tensor, expected and got. Several publishers' parts of a chunk are
  // under way at once. `amax_requests` are sorted by tensor, and have each tensor once.
  virtual void Fetch(const Schedule& schedule, std::span<const AmaxRequest> amax_requests, FetchSink& sink,
                     Deadline deadline) = 0;
  // What a Fetch that was through has kept of the snapshot; null: nothing is kept.
  virtual std::shared_ptr<const SourceCopy> source() const = 0;
  // The channel from Open on, and the figures of a Fetch, partial ones if it threw.
  virtual FetchStats stats() const = 0;
  // Waits a moment for what publishers say of their cost after a Fetch, which `stats` has from then on.
  virtual void AwaitCosts() noexcept = 0;
  // Tells publishers that this rank needs the version's memory no longer. The destructor does it too.
  virtual void Close() noexcept = 0;
};

}  // namespace layercast
