// A reload that another decides on: whoever has several engines take a version together. It stops where the version is
// staged, and again where nothing but the copy is left, and goes on when it is told to (RPC.md has the calls). Nobody
// is waited for longer than a lease.
#pragma once

#include <chrono>
#include <condition_variable>
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

  // Of the RPC thread: the next step, or none. `reply` is answered once it is done. Throws kFailedPrecondition unless
  // that is what the reload waits for. `reason`: of an abort, for the engine's status.
  void Say(Word word, const RpcReply& reply, const std::string& reason = {});
  // The lease begins anew. Throws kFailedPrecondition when no reload waits.
  void Renew();
  // The engine ends: a reload that waits is aborted, now and later.
  void Close();

  // Of the reload, which `asked` began.
  void Begin(std::chrono::milliseconds lease, const RpcReply& asked);
  // Answers whoever asked last, and returns when it is told `next`. Throws kCancelled when it is told to abort, and
  // kDeadlineExceeded when the lease or the deadline is over.
  void Await(Word next, Json answer, Deadline deadline);
  // Answers whoever asked last.
  void End(Json outcome);

 private:
  void Answer(Json answer);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::chrono::milliseconds lease_{};  // guarded by mutex_, as all below
  std::optional<RpcReply> asked_;      // last, and not answered
  std::optional<Word> awaited_;        // while it waits
  std::optional<Word> said_;           // to what it waits for
  std::string reason_;                 // of an abort
  bool closed_ = false;
  Deadline lease_ends_{Deadline::Clock::now()};  // while it waits
};

}  // namespace layercast
