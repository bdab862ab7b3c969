#include "trainer_side/kept_versions.h"

#include <algorithm>
#include <chrono>
#include <ranges>
#include <utility>

#include "layercast/error.h"
#include "src/base/run_at.h"
#include "src/base/since_1970.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

// How long to wait until a version that has expired is released. If all goes well, it does not take that long.
constexpr std::chrono::milliseconds kLettingGo{1000};
constexpr std::chrono::hours kLongestHold{24};

// Counts memory once, however many versions hold it.
class CountedMemory {
 public:
  std::uint64_t Add(PublishedState& state) {
    std::uint64_t added = 0;
    for (const std::shared_ptr<const Buffer>& copy : state.Copies()) {
      if (seen_.insert(copy.get()).second) added += copy->size();
    }
    total_ += added;
    return added;
  }
  std::uint64_t total() const { return total_; }

 private:
  std::set<const Buffer*> seen_;
  std::uint64_t total_ = 0;
};

}  // namespace

void KeptVersions::CheckNewer(const PublishOptions& options) const {
  const std::lock_guard lock(mutex_);
  const std::string& run = *options.run;
  const auto found = runs_.find(options.lineage);
  if (found == runs_.end()) return;
  const Runs& runs = found->second;
  if (!run.empty() && runs.older.contains(run)) {
    throw Error(ErrorCode::kInvalidArgument, "lineage " + Quote(options.lineage) + ": expected run " +
                                                 Quote(runs.latest) + " or a new one, got " + Quote(run) +
                                                 ", which it has followed");
  }
  if (!run.empty() && run != runs.latest) return;
  if (options.step > runs.last_step || (runs.restored && options.step == runs.last_step)) return;
  throw Error(ErrorCode::kInvalidArgument, "lineage '" + options.lineage + "': expected a step after " +
                                               std::to_string(runs.last_step) + ", got " +
                                               std::to_string(options.step));
}

void KeptVersions::Add(std::shared_ptr<PublishedState> state, const PublishOptions& options) {
  const std::lock_guard lock(mutex_);
  const auto [found, first] =
      runs_.try_emplace(options.lineage, Runs{.latest = *options.run, .last_step = 0, .older = {}, .restored = false});
  Runs& runs = found->second;
  if (!options.run->empty() && runs.latest != *options.run) {
    runs.older.insert(std::exchange(runs.latest, *options.run));
    for (std::vector<Kept>* const list : {&current_, &evicted_}) {
      for (const Kept& kept : *list) {
        const bool follows = kept.version().lineage == options.lineage && kept.version().step >= options.step;
        if (follows) kept.state->offered->Shadow();
      }
    }
  }
  runs.last_step = options.step;
  runs.restored = false;
  current_.push_back({.state = std::move(state), .published_ms = MillisecondsSince1970()});
  offered_.push_back({options.lineage, options.step, current_.back().version().digest, *options.run});
  if (offered_.size() > kMostRemembered) offered_.pop_front();
  EvictOld();
}

void KeptVersions::Restore(std::shared_ptr<PublishedState> state, const StoredVersion& stored,
                           const std::vector<RunRecord>& runs) {
  const std::lock_guard lock(mutex_);
  Runs known{.latest = runs.back().run, .last_step = 0, .older = {}, .restored = true};
  for (const RunRecord& run : runs) known.older.insert(run.run);
  known.older.erase(known.latest);
  if (stored.name.run == runs.size()) known.last_step = stored.version().step;
  runs_[stored.version().lineage] = std::move(known);
  if (stored.shadowed) state->offered->Shadow();
  current_.push_back({.state = std::move(state), .published_ms = stored.record.published_ms});
  offered_.push_back(
      {stored.version().lineage, stored.version().step, current_.back().version().digest, stored.record.run});
  EvictOld();
}

std::shared_ptr<PublishedState> KeptVersions::Restored(const Version& version, const std::string& run) const {
  const std::lock_guard lock(mutex_);
  const auto runs = runs_.find(version.lineage);
  if (runs == runs_.end() || !runs->second.restored || runs->second.last_step != version.step) return nullptr;
  if (!run.empty() && run != runs->second.latest) return nullptr;  // it begins a run
  for (const Kept& kept : current_ | std::views::reverse) {
    if (kept.version().lineage != version.lineage || kept.version().step != version.step) continue;
    if (kept.version() == version) return kept.state;
    throw Error(ErrorCode::kInvalidArgument, "lineage " + Quote(version.lineage) + ": the store has " +
                                                 kept.version().ToString() + ", got " + version.ToString() +
                                                 ": expected a step after it, or another run");
  }
  return nullptr;
}

void KeptVersions::EvictOld() {
  const auto unpinned = [this] { return std::ranges::count(current_, false, &Kept::stays); };
  const auto oldest = [this] {
    return static_cast<std::size_t>(std::ranges::find(current_, false, &Kept::stays) - current_.begin());
  };
  while (static_cast<std::size_t>(unpinned()) > limits_.retained_versions) EvictAt(oldest(), false);
  while (oldest() + 1 < current_.size() && IsOverBytes()) EvictAt(oldest(), false);
}

bool KeptVersions::IsOverBytes() const {
  if (limits_.retained_bytes == 0) return false;
  CountedMemory memory;
  for (const Kept& kept : current_) memory.Add(*kept.state);
  return memory.total() > limits_.retained_bytes;
}

void KeptVersions::EvictAt(std::size_t index, bool ordered) {
  const auto at = current_.begin() + static_cast<std::ptrdiff_t>(index);
  at->state->Withdraw();
  at->ordered = ordered;
  evicted_.push_back(std::move(*at));
  current_.erase(at);
}

void KeptVersions::FreeEvicted() {
  EraseReleased();
  std::vector<std::shared_ptr<PublishedState>> expired;
  {
    const std::lock_guard lock(mutex_);
    const std::size_t over = std::max(evicted_.size(), limits_.evicted_versions) - limits_.evicted_versions;
    for (std::size_t i = 0; i < over; ++i) {
      const bool is_written =
          evicted_[i].state->offered->uses(VersionUse::kStore) > 0;  // the trainer waits for no disk
      if (!is_written) expired.push_back(evicted_[i].state);
    }
  }
  for (const auto& state : expired) state->Expire();
  for (const auto& state : expired) state->WaitReleased(kLettingGo);
  if (!expired.empty()) EraseReleased();
}

bool KeptVersions::FreeOrdered() {
  std::vector<std::shared_ptr<PublishedState>> ordered;
  {
    const std::lock_guard lock(mutex_);
    for (const Kept& kept : evicted_ | std::views::filter(&Kept::ordered)) ordered.push_back(kept.state);
  }
  std::erase_if(ordered, [](const auto& state) { return !state->WaitReleased(std::chrono::milliseconds(0)); });
  const std::lock_guard lock(mutex_);
  std::erase_if(evicted_, [&](const Kept& kept) { return std::ranges::find(ordered, kept.state) != ordered.end(); });
  return std::ranges::any_of(evicted_, &Kept::ordered);
}

void KeptVersions::EraseReleased() {
  std::vector<Kept> evicted;
  {
    const std::lock_guard lock(mutex_);
    evicted = evicted_;
  }
  std::set<const PublishedState*> released;
  for (const Kept& kept : evicted) {
    if (kept.state->WaitReleased(std::chrono::milliseconds(0))) released.insert(kept.state.get());
  }
  const std::lock_guard lock(mutex_);
  std::erase_if(evicted_, [&](const Kept& kept) { return released.contains(kept.state.get()); });
}

wire::VersionsAnswer KeptVersions::List(const DurableVersions* durable) const {
  const std::lock_guard lock(mutex_);
  wire::VersionsAnswer answer;
  answer.retained_versions = limits_.retained_versions;
  answer.retained_bytes = limits_.retained_bytes;
  std::vector<std::pair<const Kept*, bool>> all;  // and whether it is evicted
  for (const Kept& kept : evicted_) {
    if (!kept.state->IsReleased()) all.emplace_back(&kept, true);
  }
  for (const Kept& kept : current_) all.emplace_back(&kept, false);
  std::ranges::stable_sort(all, {}, [](const auto& one) { return one.first->published_ms; });
  CountedMemory memory;
  for (const auto& [kept, evicted] : all) {
    const OfferedVersion& offered = *kept->state->offered;
    answer.versions.push_back(
        {.lineage = kept->version().lineage,
         .step = kept->version().step,
         .digest = kept->version().digest,
         .run = offered.provenance().run,
         .stream = offered.mode() == PublishMode::kStream,
         .bytes = offered.manifest().total_bytes(),
         .added_bytes = memory.Add(*kept->state),
         .readers = static_cast<std::uint32_t>(offered.readers()),
         .published_ms = kept->published_ms,
         .pinned = kept->stays(),
         .evicted = evicted || offered.retired(),
         .shadowed = offered.shadowed(),
         .durability = static_cast<std::uint8_t>(durable == nullptr ? Durability::kNone : durable->Of(offered))});
  }
  answer.memory_bytes = memory.total();
  return answer;
}

wire::OfferedVersions KeptVersions::OfferedSince(const wire::OfferedSince& since) const {
  const std::lock_guard lock(mutex_);
  const auto is_it = [&](const wire::OfferedName& name) {
    return name.lineage == since.lineage && name.step == since.step && (!since.digest || name.digest == since.digest);
  };
  const auto reversed = offered_ | std::views::reverse;
  const auto found = std::ranges::find_if(reversed, is_it);
  wire::OfferedVersions answer{.known = found != reversed.end(), .newest = Newest(since.lineage), .since = {}};
  for (auto at = answer.known ? found.base() : offered_.begin(); at != offered_.end(); ++at) {
    if (at->lineage != since.lineage) continue;
    if (answer.known && at->step <= since.step) answer.shadowed = true;
    if (answer.known || at->step > since.step) answer.since.push_back(*at);
  }
  return answer;
}

// That engines take who name no version.
std::vector<wire::OfferedName> KeptVersions::Newest(const std::string& lineage) const {
  const Kept* newest = nullptr;
  for (const Kept& kept : current_ | std::views::reverse) {
    if (kept.state->offered->shadowed() || kept.state->offered->retired()) continue;
    if (newest == nullptr || kept.version().lineage == lineage) newest = &kept;
    if (newest->version().lineage == lineage) break;
  }
  if (newest == nullptr) return {};
  const Version& version = newest->version();
  return {{version.lineage, version.step, version.digest, newest->state->offered->provenance().run}};
}

std::size_t KeptVersions::Find(const Version& version) const {
  const auto found = std::ranges::find_if(current_, [&](const Kept& kept) { return kept.version() == version; });
  if (found != current_.end()) return static_cast<std::size_t>(found - current_.begin());
  std::string all;
  for (const Kept& kept : current_) all += (all.empty() ? "" : ", ") + kept.version().ToString();
  throw Error(ErrorCode::kNotFound,
              "version " + version.ToString() + " is not kept here; kept: " + (all.empty() ? "none" : all));
}

void KeptVersions::Pin(const wire::PinVersion& order) {
  const std::lock_guard lock(mutex_);
  Kept& kept = current_[Find({order.lineage, order.step, order.digest})];
  if (order.pinned) ExpectRoomToPin(kept);
  kept.pinned = order.pinned;
  EvictOld();
}

void KeptVersions::Hold(const wire::HoldVersion& order) {
  const std::lock_guard lock(mutex_);
  Kept& kept = current_[Find({order.lineage, order.step, order.digest})];
  if (order.lease_ms > 0) ExpectRoomToPin(kept);
  const auto lease = std::min<std::uint64_t>(order.lease_ms, std::chrono::milliseconds(kLongestHold).count());
  kept.held_until = std::chrono::steady_clock::now() + std::chrono::milliseconds(lease);
  EvictOld();
}

void KeptVersions::ExpectRoomToPin(const Kept& kept) const {
  const auto pinned = static_cast<std::size_t>(std::ranges::count(current_, true, &Kept::stays));
  if (kept.stays() || pinned < kMostPinned) return;
  throw Error(ErrorCode::kResourceExhausted,
              std::to_string(pinned) + " versions are pinned, the most that may be: unpin one");
}

void KeptVersions::Evict(const wire::EvictVersion& order) {
  const std::lock_guard lock(mutex_);
  const std::size_t index = Find({order.lineage, order.step, order.digest});
  if (current_[index].stays()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "version " + current_[index].version().ToString() + " is pinned: unpin it before it is evicted");
  }
  EvictAt(index, true);
}

std::string KeptVersions::NewestLineage() const {
  const std::lock_guard lock(mutex_);
  return current_.empty() ? "" : current_.back().version().lineage;
}

void KeptVersions::Orphan() {
  const std::lock_guard lock(mutex_);
  for (const Kept& kept : current_) kept.state->Orphan();
  for (const Kept& kept : evicted_) kept.state->Orphan();
}

}  // namespace layercast
