// A reload whose steps a controller decides on, so that several engines take a version together. It stops once the
// version is staged, and again when nothing but the copy is left, and goes on when it is told to (RPC.md has the
// calls). It waits for nobody longer than a lease.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "src/base/deadline.h"
#include "src/control/rpc.h"

namespace layercast {

// Resource; thread-safe.
class HeldReload {
 public:
  enum class Word { kPrepare, kCommit, kAbort };

  // For the RPC thread. Tells the waiting reload to take the next step, or to abort. `reply` is answered once that is
  // done. Throws kFailedPrecondition unless a reload with this ticket waits, its lease is not over, and it waits for
  // this word or is to abort. `reason` explains an abort in the engine's status.
  void Say(Word word, std::uint64_t ticket, const RpcReply& reply, const std::string& reason = {});
  // Starts the lease anew. Throws kFailedPrecondition if no reload with this ticket waits, or the lease is over.
  void Renew(std::uint64_t ticket);
  // Says that the engine ends: aborts a reload that waits, now or later.
  void Close();

  // For the reloading thread. Begins a reload whose first call `asked` will answer.
  void Begin(std::chrono::milliseconds lease, const RpcReply& asked);
  // Answers the last call, with the reload's `ticket` beside `answer`, and returns when told `next`. Throws kCancelled
  // when told to abort or when the engine ends, and kDeadlineExceeded when the lease or the deadline is over.
  void Await(Word next, Json answer, Deadline deadline);
  // Answers the last call with the reload's outcome.
  void End(Json outcome);

 private:
  void ExpectHeld(const std::string& call, std::uint64_t ticket) const;
  void Answer(Json answer);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t ticket_ = 0;  // whose reload it is; guarded by mutex_, like all members below
  std::chrono::milliseconds lease_{};
  std::optional<RpcReply> asked_;  // the last call, if it was not answered yet
  std::optional<Word> awaited_;    // what it waits for, while it does
  std::optional<Word> said_;       // what it was told, if anything
  std::string reason_;             // why it is aborted
  bool closed_ = false;
  Deadline lease_ends_{Deadline::Clock::now()};  // meaningful while it waits
};

}  // namespace layercast
