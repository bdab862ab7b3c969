// Answers subscriptions to snapshots on a thread of its own: digests of a schedule's chunks take as long as reading the
// version. Used by the offer service.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/base/bounded_queue.h"
#include "src/base/failpoint.h"
#include "src/base/worker_pool.h"
#include "src/session/corrupted_offer.h"
#include "src/session/offered_version.h"
#include "src/session/outbox.h"
#include "src/tensor/axis_amax.h"
#include "src/wire/schedule.h"

namespace layercast {

struct DigestJob {
  SessionKey key;
  std::shared_ptr<OfferedVersion> version;   // the second owner is the publisher
  std::shared_ptr<const Schedule> schedule;  // the second owner is the desk's cache
  std::vector<AmaxRequest> amax_requests;
};

// Resource; thread-safe. What it borrows outlives it.
class DigestWorker {
 public:
  struct Parts {
    WorkerPool& pool;
    FailPoints& failpoints;
    Outbox& outbox;
    MemoryResource& arena;  // for what a failpoint corrupts
    std::span<OfferingEnd* const> ends;
    std::function<std::uint64_t(std::uint64_t count)> take_offer_ids;
  };
  explicit DigestWorker(Parts parts);
  ~DigestWorker();  // jobs that wait are dropped
  DigestWorker(const DigestWorker&) = delete;
  DigestWorker& operator=(const DigestWorker&) = delete;

  // `subscribed` (or `refused`) goes to the outbox when it is done. Throws kResourceExhausted when too many wait.
  void Put(DigestJob job);

 private:
  void Run(const std::stop_token& stop);
  wire::Subscribed Answer(const DigestJob& job);
  const std::vector<Digest>& DigestsOf(const DigestJob& job);

  const Parts parts_;
  BoundedQueue<DigestJob> jobs_{4096};
  // By offer and schedule: computed once for each distinct schedule. Of the thread alone.
  std::map<std::pair<std::uint64_t, std::string>, std::vector<Digest>> cache_;
  std::optional<CorruptedOffer> corrupted_;  // a failpoint fires once
  std::jthread thread_;
};

}  // namespace layercast
