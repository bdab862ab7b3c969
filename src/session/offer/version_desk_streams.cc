// VersionDesk: when the walk of a stream begins. It waits for the sessions of all ranks of an engine; those that wait
// in vain are refused. The number of walks at once is bounded.
#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/as_error.h"
#include "src/session/offer/stream_walk.h"
#include "src/session/offer/version_desk.h"

namespace layercast {

void VersionDesk::StartWalkIfComplete(const Session& last) {
  std::vector<StreamReader> readers;
  std::vector<Session*> members;
  for (auto& [key, session] : sessions_) {
    if (!session.awaits_walk() || !session.IsOfOneReload(last)) continue;
    readers.push_back({key, session.schedule, session.amax_requests, SignedTextOf(session)});
    members.push_back(&session);
  }
  if (readers.size() < last.hello.ranks) return;
  if (window_.walks >= options_.max_walks) {
    walks_wait_ = true;
    return;
  }
  walks_.push_back(std::make_unique<StreamWalk>(last.version(), std::move(readers), parts_.context, window_));
  for (Session* member : members) member->walk = walks_.back().get();
}

// If a rank is gone, the walk that was to begin with all ranks never will, so those that wait for it are refused. Each
// that is refused is gone too, and is handled the same way.
void VersionDesk::RefuseWhoWaitsFor(const Session& gone, const std::string& why) {
  const auto waiting = std::ranges::find_if(
      sessions_, [&](const auto& one) { return one.second.awaits_walk() && one.second.IsOfOneReload(gone); });
  if (waiting == sessions_.end()) return;
  const SessionKey key = waiting->first;
  parts_.context.outbox.Put(key, Refuse(key, Error(ErrorCode::kCancelled, why)));
}

// A rank that has no session by now has failed before it could open one. Its engine knows that, but its other ranks do
// not.
void VersionDesk::RefuseWhoWaitsInVain() {
  const auto in_vain = [this](const auto& one) {
    const Session& waiting = one.second;
    if (!waiting.awaits_walk() || Deadline::Clock::now() - waiting.subscribed < options_.ranks_within) return false;
    return RanksHere(waiting).size() < waiting.hello.ranks;
  };
  for (auto one = std::ranges::find_if(sessions_, in_vain); one != sessions_.end();
       one = std::ranges::find_if(sessions_, in_vain)) {
    const Session waiting = one->second;  // a copy: the first refusal ends the session, and the others with it
    std::string here;
    for (const std::uint32_t rank : RanksHere(waiting)) here += (here.empty() ? "" : ", ") + std::to_string(rank);
    RefuseWhoWaitsFor(waiting, "the stream begins when all ranks of '" + waiting.hello.engine +
                                   "' have asked for it: expected " + std::to_string(waiting.hello.ranks) +
                                   " of them, got none but " + here + " within " +
                                   std::to_string(options_.ranks_within.count()) + " ms");
  }
}

// The ranks that have a session for the same reload of their engine.
std::set<std::uint32_t> VersionDesk::RanksHere(const Session& of) const {
  std::set<std::uint32_t> ranks;
  for (const auto& [key, session] : sessions_) {
    if (session.IsOfOneReload(of)) ranks.insert(session.hello.rank);
  }
  return ranks;
}

bool VersionDesk::Session::IsOfOneReload(const Session& other) const {
  return version() == other.version() && hello.engine == other.hello.engine && hello.attempt == other.hello.attempt;
}

bool VersionDesk::Session::awaits_walk() const {
  return schedule != nullptr && walk == nullptr && version()->mode() == PublishMode::kStream;
}

void VersionDesk::StartWalksThatWait() {
  if (!std::exchange(walks_wait_, false)) return;
  std::map<SessionKey, Error> failed;  // refused afterwards, because that ends sessions
  for (const auto& [key, session] : sessions_) {
    if (!session.awaits_walk()) continue;
    try {
      StartWalkIfComplete(session);
    } catch (const std::exception& error) {  // no thread is left, or no memory
      failed.emplace(key, AsError(error));
    }
  }
  for (const auto& [key, error] : failed) {
    const auto session = sessions_.find(key);  // gone with another rank's, or begun with it after all
    if (session == sessions_.end() || !session->second.awaits_walk()) continue;
    parts_.context.outbox.Put(key, Refuse(key, error));
  }
}

// Drops walks that have ended, and what is left in their windows.
void VersionDesk::DropEndedWalks() {
  std::erase_if(walks_, [this](const auto& walk) {
    const auto takes = [&](const auto& session) { return session.second.walk == walk.get(); };
    return walk->ended() && std::ranges::none_of(sessions_, takes);
  });
}

}  // namespace layercast
