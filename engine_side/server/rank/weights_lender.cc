#include "engine_side/server/rank/weights_lender.h"

namespace layercast {

WeightsLender::~WeightsLender() {
  if (service_ != nullptr) service_->Stop();  // walks must end before what they read is destroyed
}

std::string WeightsLender::Lend(LentBuffers& buffers, const Version& as, const LenderOptions& options) {
  const std::lock_guard lock(mutex_);
  if (service_ == nullptr) {
    service_ = std::make_unique<OfferService>(
        OfferServiceOptions{.endpoint = options.endpoint, .keys = options.keys, .name = "lender"}, pool_, failpoints_);
  }
  std::shared_ptr<OfferedVersion>& offered = offered_[&buffers];
  if (offered != nullptr) service_->Withdraw(offered);
  offered = buffers.Offered(as, config_);
  service_->Offer(offered);
  return service_->endpoint();
}

}  // namespace layercast
