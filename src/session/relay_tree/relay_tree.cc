#include "src/session/relay_tree/relay_tree.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "layercast/error.h"

namespace layercast {

std::optional<RelayPlace> RelayTree::Join(const SessionKey& key, Receiver receiver, Pace::TimePoint now) {
  if (members_.contains(key)) {
    throw Error(ErrorCode::kInvalidArgument,
                "session " + std::to_string(key.session) + ": expected a number of its own, got a finished session's");
  }
  // A member that served at the same endpoint before was the same receiver, in an earlier attempt.
  if (!receiver.place.endpoint.empty()) {
    for (auto other = members_.begin(); other != members_.end();) {
      const auto member = other++;
      if (member->second.receiver.place.endpoint == receiver.place.endpoint) Retire(member);
    }
  }
  members_.emplace(key, Member{.receiver = std::move(receiver), .number = joined_++, .pace = Pace(now)});
  ++receivers_;
  return Place(*members_.find(key));
}

std::optional<RelayTree::Move> RelayTree::Lost(const SessionKey& key, const RelayPlace& relay) {
  const auto found = members_.find(key);
  if (found == members_.end() || found->second.from != Member::From::kRelay) return std::nullopt;
  Member& member = found->second;
  const auto feeder = members_.find(member.relay);
  // Only a receiver that was sent to a relay may report it as lost.
  if (feeder->second.receiver.place != relay) return std::nullopt;
  Detach(member);
  ++member.has_lost;
  Retire(feeder);
  return Move{key, Place(*found)};
}

std::optional<RelayTree::Escape> RelayTree::Note(const SessionKey& key, const wire::Progress& progress,
                                                 Pace::TimePoint now) {
  const auto found = members_.find(key);
  if (found == members_.end()) return std::nullopt;
  Member& member = found->second;
  const std::chrono::microseconds period = member.pace.Note(progress, now);
  if (member.from != Member::From::kRelay) return std::nullopt;
  Member& relay = members_.at(member.relay);
  std::optional<std::string> why = WhyElsewhere(*found, relay, period, now);
  if (!why) return std::nullopt;
  relay.slow = true;
  const RelayPlace from = relay.receiver.place;
  Detach(member);
  ++member.has_lost;
  return Escape{.move = {key, Place(*found)}, .from = from, .why = *std::move(why)};
}

std::optional<std::string> RelayTree::WhyElsewhere(Members::value_type& follower, const Member& relay,
                                                   std::chrono::microseconds period, Pace::TimePoint now) const {
  auto& [key, member] = follower;
  const std::chrono::microseconds none(0);
  std::optional<std::string> why = WhyHeldUp(member.pace, {relay.pace, relay.finished}, RatesBeside(key, now), now);
  member.held_up = why ? member.held_up + period : none;
  if (member.held_up >= kHeldUp) return why;
  const bool waits_itself = !relay.finished && relay.from == Member::From::kRelay && relay.pace.starves();
  member.starved = member.pace.starves() && !waits_itself ? member.starved + period : none;
  if (member.starved < kStarved) return std::nullopt;
  return "no chunk of it has come for " + std::to_string(kStarved.count()) + " ms";
}

void RelayTree::Finish(const SessionKey& key) {
  const auto found = members_.find(key);
  if (found == members_.end() || found->second.finished) return;
  Detach(found->second);
  found->second.finished = true;
  --receivers_;
  if (found->second.receiver.place.endpoint.empty()) members_.erase(found);
  ForgetFinished();
}

std::vector<RelayTree::Move> RelayTree::Leave(const SessionKey& key) {
  const auto leaving = members_.find(key);
  if (leaving == members_.end()) return {};
  Detach(leaving->second);
  if (!leaving->second.finished) --receivers_;
  members_.erase(leaving);
  std::vector<Members::value_type*> orphans;
  for (auto& member : members_) {
    if (member.second.from != Member::From::kRelay || member.second.relay != key) continue;
    member.second.from = Member::From::kNobody;
    orphans.push_back(&member);
  }
  std::vector<Move> moves;
  for (Members::value_type* orphan : orphans) moves.push_back({orphan->first, Place(*orphan)});
  return moves;
}

std::optional<RelayTree::Standing> RelayTree::StandingOf(const SessionKey& key) const {
  const auto found = members_.find(key);
  if (found == members_.end()) return std::nullopt;
  const Member& member = found->second;
  const bool relayed = member.from == Member::From::kRelay;
  return Standing{.takes_from = relayed ? members_.at(member.relay).receiver.place.endpoint : "",
                  .relays_at = member.receiver.place.endpoint,
                  .pace = member.pace};
}

std::size_t RelayTree::DepthOf(const SessionKey& key) const {
  std::size_t depth = 0;
  for (const Member* at = &members_.at(key); at->from == Member::From::kRelay; at = &members_.at(at->relay)) ++depth;
  return depth;
}

std::optional<RelayPlace> RelayTree::Place(Members::value_type& placed) {
  auto& [key, member] = placed;
  const Members::value_type* best = nullptr;
  const auto rank = [&](const Members::value_type& relay) {
    return std::tuple(relay.second.receiver.host != member.receiver.host, DepthOf(relay.first), relay.second.number);
  };
  if (member.receiver.takes_relays && member.has_lost < kMostLost) {
    for (const Members::value_type& relay : members_) {
      if (MayFeed(relay, key) && (best == nullptr || rank(relay) < rank(*best))) best = &relay;
    }
  }
  if (best == nullptr) {
    member.from = Member::From::kPublisher;
    return std::nullopt;
  }
  member.from = Member::From::kRelay;
  member.relay = best->first;
  ++members_.at(best->first).feeds;
  return best->second.receiver.place;
}

void RelayTree::Detach(Member& member) {
  if (member.from == Member::From::kRelay) --members_.at(member.relay).feeds;
  member.from = Member::From::kNobody;
  member.held_up = {};
  member.starved = {};
}

// The rates of the others, of which only those count that take chunks just now.
std::vector<double> RelayTree::RatesBeside(const SessionKey& key, Pace::TimePoint now) const {
  std::vector<double> rates;
  for (const auto& [other, member] : members_) {
    if (other != key && !member.finished && !member.pace.IsSilent(now)) rates.push_back(member.pace.rate());
  }
  return rates;
}

bool RelayTree::MayFeed(const Members::value_type& relay, const SessionKey& key) const {
  const Member& member = relay.second;
  return !member.receiver.place.endpoint.empty() && !member.lost && member.feeds < kFanOut &&
         (member.finished || member.from != Member::From::kNobody) && !IsBelow(relay.first, key) &&
         !IsSlowed(relay.first);
}

bool RelayTree::IsBelow(const SessionKey& key, const SessionKey& relay) const {
  for (const SessionKey* at = &key;; at = &members_.at(*at).relay) {
    if (*at == relay) return true;
    if (members_.at(*at).from != Member::From::kRelay) return false;
  }
}

// Whether the relay `key` is slow, or waits for one that is.
bool RelayTree::IsSlowed(const SessionKey& key) const {
  for (const Member* at = &members_.at(key);; at = &members_.at(at->relay)) {
    if (at->slow) return true;
    if (at->from != Member::From::kRelay) return false;
  }
}

void RelayTree::Retire(Members::iterator member) {
  member->second.lost = true;
  if (member->second.finished && member->second.feeds == 0) members_.erase(member);
}

// Members that somebody takes from stay. Of the others, those that nobody is sent to any more are forgotten first, then
// the oldest.
void RelayTree::ForgetFinished() {
  std::vector<Members::iterator> idle;
  for (auto next = members_.begin(); next != members_.end();) {
    const auto at = next++;
    const Member& member = at->second;
    if (!member.finished || member.feeds != 0) continue;
    if (member.lost || member.slow) {
      members_.erase(at);
    } else {
      idle.push_back(at);
    }
  }
  if (idle.size() <= kMostFinished) return;
  std::ranges::sort(idle, {}, [](const auto& member) { return member->second.number; });
  idle.resize(idle.size() - kMostFinished);
  for (const auto& oldest : idle) members_.erase(oldest);
}

}  // namespace layercast
