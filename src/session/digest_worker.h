// Answers subscriptions to snapshots on a thread of its own: digests of a schedule's chunks take as long as reading the
// version, and magnitudes that receivers ask for as long as reading their tensors. So they go out as they are made,
// some chunks' at a time, and receivers take turns. Used by the offer desk.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/bounded_queue.h"
#include "src/session/corrupted_offer.h"
#include "src/session/known_amax.h"
#include "src/session/offered_version.h"
#include "src/session/serve_context.h"
#include "src/tensor/axis_amax.h"
#include "src/wire/frames.h"
#include "src/wire/schedule.h"

namespace layercast {

struct DigestJob {
  SessionKey key;
  std::weak_ptr<const VersionLease> lease;   // the session's: without it nobody waits for an answer
  std::shared_ptr<const Schedule> schedule;  // the second owner is the desk's cache
  Digest schedule_digest;
  std::vector<AmaxRequest> amax_requests;
};

// Resource; thread-safe.
class DigestWorker {
 public:
  explicit DigestWorker(ServeContext context);
  ~DigestWorker();  // jobs that wait are dropped
  DigestWorker(const DigestWorker&) = delete;
  DigestWorker& operator=(const DigestWorker&) = delete;

  // `subscribed`, as many `more_digests` as it takes (or `refused`) go to the outbox. Throws kResourceExhausted when
  // too many wait.
  void Put(DigestJob job);
  // That it took so far: its thread, and the pool for it.
  double core_seconds() const { return core_seconds_; }

 private:
  struct Work {
    DigestJob job;
    bool subscribed = false;
    std::size_t sent = 0;       // digests
    std::size_t sent_amax = 0;  // of the requests
  };

  void Run(const std::stop_token& stop);
  void TakeJobs(Deadline deadline);
  // True when that session needs no more.
  bool Step(Work& work);
  void SendNext(Work& work, const OfferedVersion& version);
  std::vector<Digest> NextDigests(Work& work, const OfferedVersion& version);
  // Those that are needed with the chunks whose digests were sent.
  std::vector<wire::AxisAmax> NextAmaxes(Work& work, const OfferedVersion& version);
  std::uint64_t OfferFor(const DigestJob& job, const OfferedVersion& version);
  std::vector<Digest>& KnownDigests(const DigestJob& job, const OfferedVersion& version);

  const ServeContext context_;
  BoundedQueue<DigestJob> jobs_{4096};
  std::atomic<double> core_seconds_{0};
  // What follows is the thread's alone.
  std::list<Work> under_way_;
  // By offer and schedule, as far as they are made: once for each distinct schedule.
  std::map<std::pair<std::uint64_t, Digest>, std::vector<Digest>> known_;
  KnownAmax known_amax_;
  std::optional<CorruptedOffer> corrupted_;  // a failpoint fires once
  std::jthread thread_;
};

}  // namespace layercast
