// A version that a publisher offers: its manifest, and its bytes (snapshot) or a way to walk them (stream); or what a
// relay has of one. It counts who uses it, so that its owner knows when the memory may be freed. Used by the offer
// service and its parts.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "layercast/version.h"
#include "layercast/weights_iterator.h"
#include "src/base/deadline.h"
#include "src/base/threads/work_clock.h"
#include "src/session/link/relayed_chunks.h"
#include "src/tensor/manifest/manifest.h"
#include "src/transport/channel/channel.h"

namespace layercast {

// Starts a walk: in the order of the names in `order` if there are any, which needs a source that gives tensors by
// name, or else in the source's own order.
using WalkFunction = std::function<std::unique_ptr<WeightsIterator>(std::span<const std::string> order)>;

// The digests of a schedule's chunks, by the schedule's digest.
using DigestsBySchedule = std::map<Digest, std::vector<Digest>>;

// What a publisher says of a version beside its tensors; in no digest. Value.
struct Provenance {
  std::string run{};     // PublishOptions::run; empty: none is known
  std::string config{};  // Weights::config; empty: none was given
};

// Who uses a version: receivers' sessions; walks of a stream, which may go on for a moment after the last session;
// whoever writes it into a store; and whoever encodes what changed since then.
enum class VersionUse : std::uint8_t { kReader, kWalk, kStore, kBase };

// Resource; thread-safe. Immutable except for the count of its uses, and for whether it is retired, expired or
// shadowed.
class OfferedVersion {
 public:
  // A snapshot: `offer` holds every tensor of the manifest. `borrowed` says that they lie in memory which is not the
  // service's arena. `cost` is what the version cost the trainer so far. `chunk_digests` are those that are known.
  OfferedVersion(Manifest manifest, Offer offer, bool borrowed, WorkCost cost = {}, Provenance provenance = {},
                 DigestsBySchedule chunk_digests = {});
  // A stream. With `layer_order` it is walked in the order of the first receiver's schedule.
  OfferedVersion(Manifest manifest, WalkFunction walk, bool layer_order, Provenance provenance = {});

  // A relay's snapshot, which grows: the chunks that it has of a version that somebody else publishes.
  OfferedVersion(std::shared_ptr<RelayedChunks> relayed, std::uint64_t offer_id);

  const Manifest& manifest() const { return manifest_; }
  const std::vector<std::byte>& encoded_manifest() const { return encoded_manifest_; }
  PublishMode mode() const { return walk_ ? PublishMode::kStream : PublishMode::kSnapshot; }
  const Offer& offer() const { return offer_; }
  const DigestsBySchedule& chunk_digests() const { return chunk_digests_; }
  RelayedChunks* relayed() const { return relayed_.get(); }  // null: the version is this publisher's own
  bool borrowed() const { return borrowed_; }
  const WorkCost& cost() const { return cost_; }
  const Provenance& provenance() const { return provenance_; }
  bool layer_order() const { return layer_order_; }
  std::unique_ptr<WeightsIterator> Walk(std::span<const std::string> order) const { return walk_(order); }

  int uses(VersionUse use) const;
  int readers() const { return uses(VersionUse::kReader); }
  // Says that no new reader will come. The version is released when it is retired and nobody uses it any more.
  void Retire();
  bool retired() const;
  bool WaitReleased(Deadline deadline) const;
  // Says that the memory of a retired version is needed, so that those who read it are to let go at once.
  void Expire();
  bool expired() const;
  // Says that a later run of the lineage has taken the version's step over.
  void Shadow() { shadowed_ = true; }
  bool shadowed() const { return shadowed_; }
  // How long ago the version was retired; 0: it is not.
  Deadline::Clock::duration RetiredFor() const;

 private:
  friend class VersionHold;
  void Count(VersionUse use, int by);

  const Manifest manifest_;
  const std::vector<std::byte> encoded_manifest_;
  const Offer offer_;
  const WalkFunction walk_;
  const std::shared_ptr<RelayedChunks> relayed_;  // the second owner is the relay
  const bool borrowed_ = false;
  const WorkCost cost_;
  const bool layer_order_ = false;
  const Provenance provenance_;
  const DigestsBySchedule chunk_digests_;
  std::atomic<bool> shadowed_{false};
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<VersionUse, int> uses_;                      // guarded by mutex_
  std::optional<Deadline::Clock::time_point> retired_;  // guarded by mutex_
  bool expired_ = false;                                // guarded by mutex_
};

// The ends that can carry the version. A channel that hands over its own arena cannot carry borrowed memory, which lies
// where the trainer has it; and most channels cannot carry a version that lies on a device.
std::vector<OfferingEnd*> CarriersOf(const OfferedVersion& version, std::span<OfferingEnd* const> ends);

// One use of a version. While a hold lives, the version's memory stays where it is. Resource.
class VersionHold {
 public:
  explicit VersionHold(std::shared_ptr<OfferedVersion> version, VersionUse use = VersionUse::kReader)
      : version_(std::move(version)), use_(use) {
    version_->Count(use_, 1);
  }
  ~VersionHold() { version_->Count(use_, -1); }
  VersionHold(const VersionHold&) = delete;
  VersionHold& operator=(const VersionHold&) = delete;

  const std::shared_ptr<OfferedVersion>& version() const { return version_; }

 private:
  const std::shared_ptr<OfferedVersion> version_;  // the second owner is the publisher
  const VersionUse use_;
};

}  // namespace layercast
