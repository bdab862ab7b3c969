#include "engine_side/server/reload/followed_publisher.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <utility>

#include "src/base/threads/thread_name.h"
#include "src/net/zmq/endpoint.h"
#include "src/session/ask/offered_question.h"

namespace layercast {
namespace {

using Clock = Deadline::Clock;

constexpr std::chrono::seconds kPeriod{1};
constexpr std::chrono::milliseconds kFollowedAnswer{5'000};
constexpr std::size_t kMostWaiting = 1024;

}  // namespace

FollowedPublisher::FollowedPublisher(Keys keys, std::function<std::optional<Version>()> served,
                                     const std::string& publishers)
    : keys_(std::move(keys)), served_(std::move(served)) {
  if (!publishers.empty()) Follow(publishers);
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

FollowedPublisher::~FollowedPublisher() {
  thread_.request_stop();
  thread_.join();
  for (const Waiting& one : waiting_) one.reply.Failure({ErrorCode::kCancelled, "the engine was ended"});
}

void FollowedPublisher::Follow(const std::string& publishers) {
  const std::lock_guard lock(mutex_);
  const std::string first = SplitEndpoints(publishers).front();
  if (first == publisher_) return;
  publisher_ = first;
  heard_.reset();
  silence_.clear();
  next_ask_ = {};
  changed_.notify_all();
}

std::string FollowedPublisher::publisher() const {
  const std::lock_guard lock(mutex_);
  return publisher_;
}

void FollowedPublisher::Check(const StalenessBound& bound, const RpcReply& reply, std::function<void()> go_on) {
  Waiting call{bound, Clock::now(), reply, std::move(go_on)};
  std::unique_lock lock(mutex_);
  if (!std::exchange(wanted_, true)) changed_.notify_all();
  const bool known = heard_ && call.came - heard_->at <= bound.heard_within;
  if (known || publisher_.empty() || waiting_.size() >= kMostWaiting) {
    const std::optional<Error> why = Decide(call);
    lock.unlock();
    return Answer(call, why);
  }
  waiting_.push_back(std::move(call));
  changed_.notify_all();
}

void FollowedPublisher::Run(const std::stop_token& stop) {
  NameThisThread("lc-follow");
  std::unique_lock lock(mutex_);
  while (true) {
    const bool polls = wanted_ && !publisher_.empty();
    const auto next = polls ? next_ask_ : Clock::now() + std::chrono::hours(1);
    changed_.wait_until(lock, stop, next,
                        [&] { return !waiting_.empty() || (wanted_ && !publisher_.empty()) != polls; });
    if (stop.stop_requested()) return;
    if (!wanted_ || publisher_.empty()) continue;
    if (waiting_.empty() && Clock::now() < next_ask_) continue;
    AskOnce(stop, lock);
    DecideWaiting(lock);
  }
}

// Asks without the lock. What is heard of a publisher that is not followed any more is dropped.
void FollowedPublisher::AskOnce(const std::stop_token& stop, std::unique_lock<std::mutex>& lock) {
  const std::string publisher = publisher_;
  last_ask_ = Clock::now();  // what it says is no older
  const auto asked_at = last_ask_;
  lock.unlock();
  std::optional<HeardOffer> heard;
  std::string silence;
  try {
    const Version served = served_().value_or(Version());
    const wire::OfferedSince since{served.lineage, served.step, served.digest};
    heard = HeardOffer{
        since, OfferedQuestion(links_, publisher, keys_, since).Answer(Deadline::After(kFollowedAnswer).OrStop(stop)),
        asked_at};
  } catch (const std::exception& error) {
    silence = error.what();
  }
  lock.lock();
  next_ask_ = Clock::now() + kPeriod;
  if (publisher != publisher_) return;
  if (heard) heard_ = std::move(heard);
  silence_ = std::move(silence);
}

// Those that came since are asked for anew.
void FollowedPublisher::DecideWaiting(std::unique_lock<std::mutex>& lock) {
  const auto later =
      std::ranges::stable_partition(waiting_, [this](const Waiting& call) { return call.came <= last_ask_; });
  const std::vector<Waiting> waiting(std::make_move_iterator(waiting_.begin()), std::make_move_iterator(later.begin()));
  waiting_.erase(waiting_.begin(), later.begin());
  std::vector<std::optional<Error>> why;
  why.reserve(waiting.size());
  for (const Waiting& one : waiting) why.push_back(Decide(one));
  lock.unlock();
  for (std::size_t i = 0; i < waiting.size(); ++i) Answer(waiting[i], why[i]);
  lock.lock();
}

void FollowedPublisher::Answer(const Waiting& one, const std::optional<Error>& why) {
  if (why) return one.reply.Failure(*why);
  try {
    one.go_on();
  } catch (const std::exception& error) {
    one.reply.Failure(ErrorOfCall(error));
  }
}

// Under the lock. An engine that serves nothing says so itself.
std::optional<Error> FollowedPublisher::Decide(const Waiting& call) const {
  if (publisher_.empty()) {
    return Error(ErrorCode::kFailedPrecondition,
                 "max_staleness: this engine follows no publisher: expected a reload from one, or serve --follow");
  }
  const std::optional<Version> served = served_();
  return served ? TooStale(call.bound, call.came, *served, publisher_, heard_, silence_) : std::nullopt;
}

}  // namespace layercast
