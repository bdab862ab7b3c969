#include "engine_side/server/reload/version_waits.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine_side/server/generate/generate_call.h"
#include "layercast/error.h"
#include "src/base/run_at.h"
#include "src/base/threads/thread_name.h"

namespace layercast {
namespace {

// How soon it is noticed that a caller has gone, who is owed nothing any more but its place.
constexpr std::chrono::seconds kCallersLook{1};

Error Ended() { return {ErrorCode::kCancelled, "the engine was ended"}; }

}  // namespace

VersionWaits::VersionWaits(std::function<std::optional<Version>()> served)
    : served_(std::move(served)), thread_([this](const std::stop_token& stop) { Run(stop); }) {}

void VersionWaits::Close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  for (const Wait& wait : waits_) wait.reply.Failure(Ended());
  waits_.clear();
}

void VersionWaits::Add(const Version& least, Deadline deadline, const RpcReply& reply) {
  const std::lock_guard lock(mutex_);
  if (closed_) throw Ended();
  if (waits_.size() >= kMost) {
    throw Error(ErrorCode::kResourceExhausted,
                "wait_for_version: " + std::to_string(waits_.size()) + " calls wait already, the most that may");
  }
  waits_.push_back({least, deadline, reply});
  noticed_ = true;
  changed_.notify_all();
}

void VersionWaits::Notice() {
  const std::lock_guard lock(mutex_);
  noticed_ = true;
  changed_.notify_all();
}

void VersionWaits::Run(const std::stop_token& stop) {
  NameThisThread("lc-waits");
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    changed_.wait_until(lock, stop, NextLook(), [this] { return noticed_; });
    noticed_ = false;
    AnswerSome();
  }
}

// Under the lock.
void VersionWaits::AnswerSome() {
  const std::optional<Version> served = served_();
  waits_.remove_if([&](const Wait& wait) {
    if (wait.reply.abandoned().stop_requested()) return true;
    if (Reaches(served, wait.least)) {
      wait.reply.Result({{"version", VersionToJson(served)}});
      return true;
    }
    if (!wait.deadline.Passed()) return false;
    wait.reply.Failure({ErrorCode::kDeadlineExceeded, "expected " + RunAt(wait.least) +
                                                          " or a later version in time, this engine serves " +
                                                          (served ? served->ToString() : "none")});
    return true;
  });
}

// Under the lock.
Deadline::Clock::time_point VersionWaits::NextLook() const {
  auto next = Deadline::Clock::now() + (waits_.empty() ? std::chrono::hours(1) : kCallersLook);
  for (const Wait& wait : waits_) next = std::min(next, wait.deadline.at());
  return next;
}

}  // namespace layercast
