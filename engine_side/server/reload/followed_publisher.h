// The publisher that an engine follows: the one that it took its version from last, or that it was told to follow. It
// is asked for its newest version once a second, from the first call on that sets a bound to staleness. Used by the
// engine's service.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "engine_side/server/reload/staleness.h"
#include "src/control/rpc.h"
#include "src/net/keys/keys.h"
#include "src/session/link/kept_peers.h"

namespace layercast {

// Resource; thread-safe. The thread "lc-follow" asks.
class FollowedPublisher {
 public:
  // `served` is asked for on any thread. Follows `publishers` from the start; empty: none.
  FollowedPublisher(Keys keys, std::function<std::optional<Version>()> served, const std::string& publishers);
  ~FollowedPublisher();  // calls that wait fail with kCancelled
  FollowedPublisher(const FollowedPublisher&) = delete;
  FollowedPublisher& operator=(const FollowedPublisher&) = delete;

  // From now on this one. Of several, which have a version between them, the first is asked.
  void Follow(const std::string& publishers);
  // The one that is followed; empty: none.
  std::string publisher() const;
  // Calls `go_on` if what is served is within the bound, else fails the reply by which bound it is not. At once if the
  // publisher was heard within the bound; else after it was asked anew, on the thread that asks. What `go_on` throws
  // fails the reply.
  void Check(const StalenessBound& bound, const RpcReply& reply, std::function<void()> go_on);

 private:
  struct Waiting {
    StalenessBound bound;
    Deadline::Clock::time_point came;
    RpcReply reply;
    std::function<void()> go_on;
  };
  void Run(const std::stop_token& stop);
  void AskOnce(const std::stop_token& stop, std::unique_lock<std::mutex>& lock);
  void DecideWaiting(std::unique_lock<std::mutex>& lock);
  static void Answer(const Waiting& one, const std::optional<Error>& why);
  std::optional<Error> Decide(const Waiting& call) const;

  const Keys keys_;
  const std::function<std::optional<Version>()> served_;
  KeptPeers links_;  // to the publisher
  mutable std::mutex mutex_;
  std::condition_variable_any changed_;
  std::string publisher_;            // empty: none is followed; guarded by mutex_, like all members below
  std::optional<HeardOffer> heard_;  // of publisher_
  std::string silence_;              // why it could not be asked; empty: it could
  bool wanted_ = false;              // a bound was asked for
  std::vector<Waiting> waiting_;
  Deadline::Clock::time_point last_ask_{};  // when it began
  Deadline::Clock::time_point next_ask_{};
  std::jthread thread_;
};

}  // namespace layercast
