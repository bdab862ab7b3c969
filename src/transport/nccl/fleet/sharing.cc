#include "src/transport/nccl/fleet/sharing.h"

#include <algorithm>
#include <utility>

namespace layercast::nccl_channel {

Sharing::Sharing(std::vector<ReplyQueue*> queues, std::chrono::milliseconds to_share) : to_share_(to_share) {
  for (ReplyQueue* const queue : queues) members_.push_back({queue});
}

void Sharing::Decide() {
  if (together_) return;
  const auto now = Deadline::Clock::now();
  if (AllHaveTheSame()) {
    together_ = true;
    return;
  }
  for (Member& member : members_) {
    if (member.alone || member.queue->empty()) continue;
    if (!member.since) member.since = now;
    const bool waited = now - *member.since >= to_share_;
    if (!waited && MayBecomeShared(member)) continue;
    if (waited) GiveUp(member.queue->front());
    member.alone = true;
  }
}

bool Sharing::waits() const {
  return !together_ &&
         std::ranges::any_of(members_, [](const Member& member) { return member.since && !member.alone; });
}

void Sharing::TookAlone(std::size_t member) {
  members_[member].alone = false;
  members_[member].since.reset();
}

void Sharing::TookTogether() {
  together_ = false;
  for (Member& member : members_) member.since.reset();
}

// A fleet of one shares with nobody.
bool Sharing::AllHaveTheSame() const {
  if (members_.size() == 1 || members_.front().queue->empty()) return false;
  const Reply& first = members_.front().queue->front();
  return std::ranges::all_of(members_,
                             [&](const Member& member) { return !member.alone && HasAtTheFront(member, first); });
}

bool Sharing::MayBecomeShared(const Member& member) const {
  const Reply& wanted = member.queue->front();
  return members_.size() > 1 && std::ranges::all_of(members_, [&](const Member& other) {
           return (!other.alone && HasAtTheFront(other, wanted)) || MayCome(other, wanted);
         });
}

bool Sharing::HasAtTheFront(const Member& member, const Reply& reply) {
  return !member.queue->empty() && member.queue->front().Equals(reply);
}

// Whether a member may still get to the same request: it has asked for the same behind other things, or for nothing
// yet. A member that has asked for other things only fetches other bytes, or has had these already; one that is being
// given this request alone now (so its front is skipped) will not make it again.
bool Sharing::MayCome(const Member& member, const Reply& reply) {
  if (member.missed_at == member.queue->pushed()) return false;
  const std::deque<Reply>& asked = member.queue->all();
  return asked.empty() || std::any_of(asked.begin() + (member.alone ? 1 : 0), asked.end(),
                                      [&](const Reply& other) { return other.Equals(reply); });
}

// Gives up waiting for the members that do not have this request at the front. They are not waited for again before
// they ask for something more.
void Sharing::GiveUp(const Reply& reply) {
  for (Member& member : members_) {
    if (!HasAtTheFront(member, reply)) member.missed_at = member.queue->pushed();
  }
}

}  // namespace layercast::nccl_channel
