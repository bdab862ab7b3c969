// What one receiver has asked for and its publisher has not sent yet. Part of the publisher's ends of zmq, ucx and
// nccl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "src/base/failpoint.h"
#include "src/tensor/region.h"
#include "src/transport/channel/channel_messages.h"
#include "src/transport/channel/offer_book.h"
#include "src/transport/channel/reply_plan.h"

namespace layercast {

struct Reply {
  std::uint64_t ticket;
  std::shared_ptr<Offered> offered;  // second owner: the book
  std::vector<Region> regions;
  ReplyPlan plan;

  // Whether both replies are to requests for the same bytes.
  bool Equals(const Reply& other) const { return offered == other.offered && regions == other.regions; }
};

// One thread only.
class ReplyQueue {
 public:
  // Throws kCorrupt if more is under way than the protocol allows, kNotFound if the offer is not there, and
  // kInvalidArgument if the regions do not lie in it. `failpoints` are those given to OfferingEnd::Arm, or null.
  void Push(const Request& request, const OfferBook& book, FailPoints* failpoints);
  bool empty() const { return replies_.empty(); }
  Reply& front() { return replies_.front(); }
  const std::deque<Reply>& all() const { return replies_; }
  std::uint64_t pushed() const { return pushed_; }  // how many replies were ever pushed
  void Pop();
  void Clear();

 private:
  std::deque<Reply> replies_;
  std::size_t regions_ = 0;  // of all replies
  std::uint64_t pushed_ = 0;
};

}  // namespace layercast
