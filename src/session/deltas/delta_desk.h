// The publisher's half of deltas: on a thread of its own it encodes what changed between two versions that are kept,
// for receivers that keep the older one, and offers that. Receivers with the same base and schedule share one encoding.
// Part of the desk of versions.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "src/base/deadline.h"
#include "src/base/threads/bounded_queue.h"
#include "src/base/threads/worker_pool.h"
#include "src/session/deltas/encoded_delta.h"
#include "src/session/link/offered_version.h"
#include "src/session/link/outbox.h"
#include "src/wire/frames.h"
#include "src/wire/schedule.h"

namespace layercast {

struct DeltaJob {
  SessionKey key;
  std::weak_ptr<const VersionHold> hold;     // the session's; once it is gone, nobody waits for an answer
  std::shared_ptr<const VersionHold> base;   // goes with the job
  std::shared_ptr<const Schedule> schedule;  // the second owner is the cache of the desk of versions
  Digest schedule_digest;
  std::uint64_t most_bytes = 0;  // with more than that, the receiver would rather have all bytes
};

// Resource; thread-safe.
class DeltaDesk {
 public:
  // All of it outlives the desk, and is thread-safe.
  struct Parts {
    WorkerPool& pool;
    Outbox& outbox;
    MemoryResource& arena;  // that every channel can hand over
    std::span<OfferingEnd* const> ends;
    std::function<std::uint64_t(std::uint64_t count)> take_offer_ids;
  };
  explicit DeltaDesk(Parts parts);
  ~DeltaDesk();  // jobs that wait are dropped
  DeltaDesk(const DeltaDesk&) = delete;
  DeltaDesk& operator=(const DeltaDesk&) = delete;

  // The answer, `delta`, goes to the outbox. Throws kResourceExhausted if too many jobs wait.
  void Put(DeltaJob job);
  // The core seconds that the work took so far, on its own thread and in the pool.
  double core_seconds() const { return core_seconds_; }

 private:
  using Key = std::tuple<std::uint64_t, std::uint64_t, Digest>;  // offers of version and base, and the schedule
  struct Encoding {
    EncodedDelta delta;
    std::weak_ptr<const OfferedVersion> version;
    std::vector<std::weak_ptr<const VersionHold>> readers{};  // sessions that were told of it
  };

  void Run(const std::stop_token& stop);
  void TakeJobs(Deadline deadline);
  // Does one piece of a job. Returns true when it is answered, or nobody waits for that.
  bool Step(const DeltaJob& job);
  std::optional<wire::Delta> Next(const DeltaJob& job, const std::shared_ptr<const VersionHold>& hold);
  static Key KeyOf(const DeltaJob& job, const OfferedVersion& version);
  // Whether all deltas together have no more bytes than a version does. If not, the oldest go that nobody takes.
  bool HasRoom(const OfferedVersion& version);
  // Drops the encodings that nobody takes and nobody will, or too many of them.
  void DropUnread();
  // Nobody takes it, and nobody waits for it.
  bool IsUnread(const std::pair<const Key, Encoding>& one) const;

  const Parts parts_;
  BoundedQueue<DeltaJob> jobs_{4096};
  std::atomic<double> core_seconds_{0};
  // What follows is the thread's alone.
  std::list<DeltaJob> under_way_;
  std::map<Key, Encoding> encodings_;
  std::jthread thread_;
};

}  // namespace layercast
