#include "src/session/deltas/delta_desk.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

#include "layercast/error.h"
#include "src/base/as_error.h"
#include "src/base/threads/thread_name.h"
#include "src/base/threads/work_clock.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kIdle{1000};
constexpr std::size_t kMostUnread = 4;  // encodings that are kept for receivers that may yet ask for them

constexpr std::size_t kMostWords = 500;  // of why there are none

wire::Delta None(const std::string& why) {
  return {.offer_id = 0, .chunk_bytes = {}, .why = why.substr(0, kMostWords)};
}

}  // namespace

DeltaDesk::DeltaDesk(Parts parts) : parts_(std::move(parts)) {
  thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

DeltaDesk::~DeltaDesk() {
  thread_.request_stop();
  jobs_.Close();
}

void DeltaDesk::Put(DeltaJob job) {
  if (jobs_.Push(std::move(job), Deadline::After(std::chrono::milliseconds(0)))) return;
  throw Error(ErrorCode::kResourceExhausted, "too many receivers wait for deltas");
}

void DeltaDesk::Run(const std::stop_token& stop) {
  NameThisThread("lc-deltas");
  WorkClock clock;
  while (!stop.stop_requested()) {
    TakeJobs(Deadline::After(under_way_.empty() ? kIdle : std::chrono::milliseconds(0)));
    for (auto job = under_way_.begin(); job != under_way_.end() && !stop.stop_requested();) {
      job = Step(*job) ? under_way_.erase(job) : std::next(job);
      core_seconds_ += clock.Lap().core_seconds;
    }
    DropUnread();
  }
}

void DeltaDesk::TakeJobs(Deadline deadline) {
  while (std::optional<DeltaJob> job = jobs_.Pop(deadline)) {
    under_way_.push_back(*std::move(job));
    deadline = Deadline::After(std::chrono::milliseconds(0));
  }
}

bool DeltaDesk::Step(const DeltaJob& job) {
  // The version is held for one step only, so a wait for its release is delayed by no more than that.
  const std::shared_ptr<const VersionHold> hold = job.hold.lock();
  if (hold == nullptr) return true;
  try {
    std::optional<wire::Delta> answer = Next(job, hold);
    if (!answer) return false;
    parts_.outbox.Put(job.key, *std::move(answer));
  } catch (const std::exception& thrown) {  // the receiver takes all bytes instead
    parts_.outbox.Put(job.key, None(AsError(thrown).what()));
  }
  return true;
}

std::optional<wire::Delta> DeltaDesk::Next(const DeltaJob& job, const std::shared_ptr<const VersionHold>& hold) {
  const OfferedVersion& base = *job.base->version();
  const OfferedVersion& version = *hold->version();
  if (base.expired()) return None(base.manifest().version().ToString() + " is evicted: its memory is needed");
  Encoding& encoding =
      encodings_
          .try_emplace(KeyOf(job, version), Encoding{.delta = EncodedDelta(job.schedule), .version = hold->version()})
          .first->second;
  EncodedDelta& delta = encoding.delta;
  if (!delta.complete()) delta.EncodeNext(base, version, parts_.pool);
  if (delta.bytes() > job.most_bytes) {
    return None("what changed since " + base.manifest().version().ToString() + " takes " +
                std::to_string(delta.bytes()) + " bytes" + (delta.complete() ? "" : " or more") +
                ", expected at most " + std::to_string(job.most_bytes));
  }
  if (!HasRoom(version)) return None("deltas for other receivers take all the memory that there is for them");
  if (!delta.complete()) return std::nullopt;
  if (!delta.offer()) delta.Offer(parts_.take_offer_ids(1), parts_.arena, parts_.ends);
  std::erase_if(encoding.readers, [](const auto& reader) { return reader.expired(); });
  encoding.readers.push_back(hold);
  return wire::Delta{.offer_id = *delta.offer(), .chunk_bytes = delta.chunk_bytes(), .why = {}};
}

DeltaDesk::Key DeltaDesk::KeyOf(const DeltaJob& job, const OfferedVersion& version) {
  return {version.offer().id, job.base->version()->offer().id, job.schedule_digest};
}

bool DeltaDesk::HasRoom(const OfferedVersion& version) {
  std::uint64_t bytes = 0;
  for (const auto& [key, encoding] : encodings_) bytes += encoding.delta.bytes();
  for (auto one = encodings_.begin(); one != encodings_.end() && bytes > version.manifest().total_bytes();) {
    const std::uint64_t freed = one->second.delta.bytes();
    const bool unread = IsUnread(*one);
    one = unread ? encodings_.erase(one) : std::next(one);
    if (unread) bytes -= freed;
  }
  // A single one may always be there: dense frames are a little larger than what they are of.
  return encodings_.size() == 1 || bytes <= version.manifest().total_bytes();
}

void DeltaDesk::DropUnread() {
  auto unread =
      static_cast<std::size_t>(std::ranges::count_if(encodings_, [this](const auto& one) { return IsUnread(one); }));
  std::erase_if(encodings_, [&](const auto& one) {  // those of the oldest versions first
    if (!IsUnread(one)) return false;
    const std::shared_ptr<const OfferedVersion> version = one.second.version.lock();
    const bool drop = version == nullptr || version->retired() || unread > kMostUnread;
    if (drop) --unread;
    return drop;
  });
}

bool DeltaDesk::IsUnread(const std::pair<const Key, Encoding>& one) const {
  const auto& [key, encoding] = one;
  if (!std::ranges::all_of(encoding.readers, [](const auto& reader) { return reader.expired(); })) return false;
  return std::ranges::none_of(under_way_, [&](const DeltaJob& job) {
    const std::shared_ptr<const VersionHold> hold = job.hold.lock();
    return hold != nullptr && KeyOf(job, *hold->version()) == key;
  });
}

}  // namespace layercast
