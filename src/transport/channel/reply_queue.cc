#include "src/transport/channel/reply_queue.h"

#include "layercast/error.h"
#include "src/transport/channel/offer_views.h"

namespace layercast {

void ReplyQueue::Push(const Request& request, const OfferBook& book, FailPoints* failpoints) {
  if (failpoints != nullptr) failpoints->Hit(FailPointOf(request.offer_id));
  if (replies_.size() == kMaxRequestsUnderWay || regions_ + request.regions.size() > kMaxRegionsUnderWay) {
    throw Error(ErrorCode::kCorrupt, "too many requests under way");
  }
  const std::shared_ptr<Offered> offered = book.Find(request.offer_id);
  replies_.push_back({request.ticket, offered, request.regions, ReplyPlan(ViewsOf(offered->tensors, request.regions))});
  regions_ += request.regions.size();
  ++pushed_;
}

void ReplyQueue::Pop() {
  regions_ -= replies_.front().regions.size();
  replies_.pop_front();
}

void ReplyQueue::Clear() {
  replies_.clear();
  regions_ = 0;
}

}  // namespace layercast
