// Which versions a publisher keeps: the newest, those that are pinned, and evicted ones for as long as they are read.
// Used by the publisher.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "layercast/publisher.h"
#include "src/wire/frames.h"
#include "trainer_side/published_state.h"

namespace layercast {

// Resource; thread-safe. No call waits for a reader under the lock.
class KeptVersions {
 public:
  struct Limits {
    std::size_t retained_versions = 0;
    std::uint64_t retained_bytes = 0;  // 0: no bound
    std::size_t evicted_versions = 0;
  };
  explicit KeptVersions(const Limits& limits) : limits_(limits) {}

  // Throws kInvalidArgument on a step that is not newer than the last of its run, which is the lineage's latest if none
  // is named, and on a run that another one has followed.
  void CheckNewer(const PublishOptions& options) const;
  // Adds what is offered from now on, and evicts what is kept no longer. The first version of a run shadows all of its
  // lineage that have its step or later ones.
  void Add(std::shared_ptr<PublishedState> state, const PublishOptions& options);
  // Adds one of a store, in whose order they come. `runs` are its lineage's there.
  void Restore(std::shared_ptr<PublishedState> state, const StoredVersion& stored, const std::vector<RunRecord>& runs);
  // The version of a store that has this one's lineage, run and step, if it was the last of its run; null: none was.
  // Throws kInvalidArgument if it is another one.
  std::shared_ptr<PublishedState> Restored(const Version& version, const std::string& run) const;
  // Frees evicted versions that nobody reads any more, and the oldest ones anyway if there are too many. Called
  // whenever a new version is published.
  void FreeEvicted();
  // Frees those that were evicted by an order and that nobody reads. Returns whether there are more of them.
  bool FreeOrdered();

  // `durable`: null: there is no store.
  wire::VersionsAnswer List(const DurableVersions* durable) const;
  // Also what is kept no longer: the last kMostRemembered that were offered.
  wire::OfferedVersions OfferedSince(const wire::OfferedSince& since) const;
  // Throw kNotFound, listing what there is. Pin throws kResourceExhausted if too many are, Evict kFailedPrecondition if
  // the version is pinned.
  void Pin(const wire::PinVersion& order);
  void Evict(const wire::EvictVersion& order);
  // Pins a version until a lease ends, for whoever is to take it soon. It counts as pinned meanwhile.
  void Hold(const wire::HoldVersion& order);
  std::string NewestLineage() const;  // empty: nothing is kept

  // Called when the service has stopped.
  void Orphan();

  static constexpr std::size_t kMostPinned = 16;
  static constexpr std::size_t kMostRemembered = 1024;

 private:
  struct Kept {
    std::shared_ptr<PublishedState> state;  // the other owners are the caller's handles
    std::uint64_t published_ms = 0;
    bool pinned = false;
    bool ordered = false;  // evicted by an order, and not by newer versions
    std::chrono::steady_clock::time_point held_until{};

    const Version& version() const { return state->offered->manifest().version(); }
    bool stays() const { return pinned || std::chrono::steady_clock::now() < held_until; }
  };
  // What was published of a lineage. Value.
  struct Runs {
    std::string latest;
    std::uint64_t last_step = 0;  // of the latest
    std::set<std::string> older;
    bool restored = false;  // its last version came from a store
  };

  // Each of these is called under the lock.
  void EvictOld();
  bool IsOverBytes() const;
  void EvictAt(std::size_t index, bool ordered);
  std::size_t Find(const Version& version) const;
  void ExpectRoomToPin(const Kept& kept) const;
  std::vector<wire::OfferedName> Newest(const std::string& lineage) const;

  void EraseReleased();

  const Limits limits_;
  mutable std::mutex mutex_;
  std::vector<Kept> current_;              // oldest first; guarded by mutex_
  std::vector<Kept> evicted_;              // in the order of their eviction; guarded by mutex_
  std::map<std::string, Runs> runs_;       // by lineage; guarded by mutex_
  std::deque<wire::OfferedName> offered_;  // in this order; guarded by mutex_
};

}  // namespace layercast
