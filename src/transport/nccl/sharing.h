// Decides, for the requests that are at the front of their queues, which goes to all members of an epoch by one
// broadcast, and which to one member alone. FORMAT.md has the rule.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/base/deadline.h"
#include "src/transport/reply_queue.h"

namespace layercast::nccl_channel {

// One thread only. The queues are those of the members, always the same ones.
class Sharing {
 public:
  // A request waits no longer than `to_share` for the same one of the others.
  Sharing(std::vector<ReplyQueue*> queues, std::chrono::milliseconds to_share);

  // Looks at what is at the front of the queues now.
  void Decide();
  // The front of all is one request, which goes to all.
  bool together() const { return together_; }
  // The front of that one's queue goes to it alone.
  bool alone(std::size_t member) const { return members_[member].alone; }
  // Whether a request waits for the others.
  bool waits() const;
  // That which was decided on has left the queue, or all queues.
  void TookAlone(std::size_t member);
  void TookTogether();

 private:
  struct Member {
    ReplyQueue* queue;
    bool alone = false;
    std::optional<Deadline::Clock::time_point> since{};  // its front is at the front
    std::optional<std::uint64_t> missed_at{};            // how many requests it had made when it was waited for in vain
  };

  bool AllHaveTheSame() const;
  bool MayBecomeShared(const Member& member) const;
  static bool HasAtTheFront(const Member& member, const Reply& reply);
  static bool MayCome(const Member& member, const Reply& reply);
  void GiveUp(const Reply& reply);

  const std::chrono::milliseconds to_share_;
  std::vector<Member> members_;
  bool together_ = false;
};

}  // namespace layercast::nccl_channel
