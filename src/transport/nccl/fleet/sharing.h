// Decides, for the requests that are at the front of their queues, which goes to all members of an epoch by one
// broadcast, and which to one member alone. FORMAT.md has the rule. Part of Dispatch.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/base/deadline.h"
#include "src/transport/channel/reply_queue.h"

namespace layercast::nccl_channel {

// One thread only. The queues are those of the members, which never change.
class Sharing {
 public:
  // A request waits no longer than `to_share` for the same request of the other members.
  Sharing(std::vector<ReplyQueue*> queues, std::chrono::milliseconds to_share);

  // Decides about the requests that are at the front of the queues now.
  void Decide();
  // Whether the same request is at the front of all queues, and goes to all members.
  bool together() const { return together_; }
  // Whether the request at the front of this member's queue goes to it alone.
  bool alone(std::size_t member) const { return members_[member].alone; }
  // Whether a request waits for the other members.
  bool waits() const;
  // To be called when a request that went to one member alone has left its queue.
  void TookAlone(std::size_t member);
  // To be called when a request that went to all members has left all queues.
  void TookTogether();

 private:
  struct Member {
    ReplyQueue* queue;
    bool alone = false;
    std::optional<Deadline::Clock::time_point> since{};  // when its front was first seen there
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
