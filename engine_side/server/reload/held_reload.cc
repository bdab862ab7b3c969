#include "engine_side/server/reload/held_reload.h"

#include <algorithm>
#include <utility>

#include "layercast/error.h"
#include "src/base/random_id.h"

namespace layercast {
namespace {

std::string CallOf(HeldReload::Word word) {
  switch (word) {
    case HeldReload::Word::kPrepare: return "prepare_weights";
    case HeldReload::Word::kCommit: return "commit_weights";
    case HeldReload::Word::kAbort: return "abort_weights";
  }
  return "";
}

}  // namespace

void HeldReload::Say(Word word, std::uint64_t ticket, const RpcReply& reply, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (!awaited_ || said_) {
    throw Error(ErrorCode::kFailedPrecondition,
                CallOf(word) + ": no version is held: expected stage_weights first, and its answer");
  }
  ExpectHeld(CallOf(word), ticket);
  if (word != Word::kAbort && word != *awaited_) {
    throw Error(ErrorCode::kFailedPrecondition,
                CallOf(word) + ": expected " + CallOf(*awaited_) + " or " + CallOf(Word::kAbort));
  }
  said_ = word;
  reason_ = reason;
  asked_ = reply;
  changed_.notify_all();
}

void HeldReload::Renew(std::uint64_t ticket) {
  const std::lock_guard lock(mutex_);
  ExpectHeld("hold_weights", ticket);
  lease_ends_ = Deadline::After(lease_);
}

// The thread that waits may not have noticed yet: the whole process may have been stopped.
void HeldReload::ExpectHeld(const std::string& call, std::uint64_t ticket) const {
  if (!awaited_ || lease_ends_.Passed()) {
    throw Error(ErrorCode::kFailedPrecondition, call + ": no version is held: its lease is over");
  }
  if (ticket != ticket_) {
    throw Error(ErrorCode::kFailedPrecondition,
                call + ": expected the ticket of the version that is held, got one of another stage_weights");
  }
}

void HeldReload::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  changed_.notify_all();
}

void HeldReload::Begin(std::chrono::milliseconds lease, const RpcReply& asked) {
  const std::lock_guard lock(mutex_);
  ticket_ = RandomId();
  lease_ = lease;
  asked_ = asked;
}

void HeldReload::Await(Word next, Json answer, Deadline deadline) {
  std::unique_lock lock(mutex_);
  answer["ticket"] = ticket_;
  Answer(std::move(answer));
  lease_ends_ = Deadline::After(lease_);
  awaited_ = next;
  said_.reset();
  while (!said_ && !closed_ && !lease_ends_.Passed() && !deadline.Passed()) {
    changed_.wait_until(lock, std::min(lease_ends_.at(), deadline.at()));
  }
  awaited_.reset();
  if (closed_) throw Error(ErrorCode::kCancelled, "the version was held, and the engine ends");
  if (!said_) {
    throw Error(ErrorCode::kDeadlineExceeded,
                "the version was held for " + CallOf(next) + ", which did not come in " +
                    (deadline.Passed() ? "time" : std::to_string(lease_.count()) + " ms"));
  }
  if (*said_ != Word::kAbort) return;
  const std::string reason = reason_.empty() ? "" : ": " + reason_;
  throw Error(ErrorCode::kCancelled, "the version was held, and not committed: " + CallOf(*said_) + reason);
}

void HeldReload::End(Json outcome) {
  const std::lock_guard lock(mutex_);
  Answer(std::move(outcome));
}

void HeldReload::Answer(Json answer) {
  if (!asked_) return;
  asked_->Result(std::move(answer));
  asked_.reset();
}

}  // namespace layercast
