// Answers subscriptions to snapshots on a thread of its own. The digests of a schedule's chunks take as long as reading
// the version, and the magnitudes that receivers ask for as long as reading their tensors. So answers go out in pieces,
// some chunks' at a time, and receivers take turns. Used by the desk of versions.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "src/base/threads/bounded_queue.h"
#include "src/session/link/offered_version.h"
#include "src/session/offer/corrupted_offer.h"
#include "src/session/offer/known_of_versions.h"
#include "src/session/offer/serve_context.h"
#include "src/session/signing/signed_text.h"
#include "src/session/traces/session_traces.h"
#include "src/tensor/kernels/axis_amax.h"
#include "src/wire/frames.h"
#include "src/wire/schedule.h"

namespace layercast {

struct DigestJob {
  SessionKey key;
  std::weak_ptr<const VersionHold> hold;     // the session's; once it is gone, nobody waits for an answer
  std::shared_ptr<const Schedule> schedule;  // the second owner is the desk's cache
  Digest schedule_digest;
  std::vector<AmaxRequest> amax_requests;
  std::optional<SignedText> signed_text{};  // empty: the receiver has not asked that its answers be signed
  std::shared_ptr<SessionRecord> record{};  // the session's, which is the second owner; null: nobody wants to know
};

// How many digests a receiver has after the next message: the `known` ones, or fewer, so that the magnitudes which come
// with them have at most `most_bytes` (or are those of one chunk). `left` are the requests that are not answered yet,
// in the order of the chunks that need them, and `sent` is how many digests it has.
std::size_t EndOfMessage(std::span<const AmaxRequest> left, std::size_t sent, std::size_t known,
                         const Manifest& manifest, std::uint64_t most_bytes);

// Resource; thread-safe.
class DigestWorker {
 public:
  explicit DigestWorker(ServeContext context);
  ~DigestWorker();  // jobs that wait are dropped
  DigestWorker(const DigestWorker&) = delete;
  DigestWorker& operator=(const DigestWorker&) = delete;

  // The answer goes to the outbox: `subscribed` and as many `more_digests` as it takes, or `refused`. Throws
  // kResourceExhausted if too many jobs wait.
  void Put(DigestJob job);
  // The core seconds that the work took so far, on its own thread and in the pool.
  double core_seconds() const { return core_seconds_; }

 private:
  struct Work {
    DigestJob job;
    bool subscribed = false;
    std::size_t sent = 0;       // how many digests were sent
    std::size_t sent_amax = 0;  // how many requests for magnitudes were answered
  };

  void Run(const std::stop_token& stop);
  void TakeJobs(Deadline deadline);
  // Does one piece of a job. Returns true when its session needs no more.
  bool Step(Work& work);
  using VersionPointer = std::shared_ptr<const OfferedVersion>;
  void SendNext(Work& work, const VersionPointer& version);
  static void Note(const Work& work, std::size_t first, TraceTime begin);
  // Sends what announces the chunks from number `first` on, and behind it its signature, if that was asked for.
  void Announce(const Work& work, const VersionPointer& version, std::size_t first, wire::Message message);
  std::vector<Hash> HashesOf(const Work& work, const VersionPointer& version, std::size_t first);
  std::vector<Digest> NextDigests(Work& work, const VersionPointer& version);
  // The magnitudes that are needed with the chunks whose digests were sent.
  std::vector<wire::AxisAmax> NextAmaxes(Work& work, const VersionPointer& version);
  std::uint64_t OfferFor(const DigestJob& job, const OfferedVersion& version);

  const ServeContext context_;
  BoundedQueue<DigestJob> jobs_{4096};
  std::atomic<double> core_seconds_{0};
  // What follows is the thread's alone.
  std::list<Work> under_way_;
  KnownOfVersions known_;
  std::optional<CorruptedOffer> corrupted_;  // at most one, because a failpoint fires once
  std::jthread thread_;
};

}  // namespace layercast
