// The publisher's end of the ucx channel: a listening socket, and one service thread ("lc-ucx") that owns every
// receiver's connection.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "src/net/control_socket.h"
#include "src/net/service_thread.h"
#include "src/net/wake_up.h"
#include "src/transport/channel/channel.h"
#include "src/transport/channel/offer_book.h"
#include "src/transport/ucx/one_sided/readable_offers.h"
#include "src/transport/ucx/ucx_transport.h"

namespace layercast::ucx_channel {

// Thread-safe.
class UcxOfferingEnd final : public OfferingEnd {
 public:
  UcxOfferingEnd(const std::string& bind_host, const UcxParts& parts);
  std::string address() const override;
  void TakeBack(const std::string& address) override;
  MemoryResource* arena() override { return readable_ ? readable_->memory().arena() : nullptr; }
  void Add(const Offer& offer) override { book_.Add(offer); }
  void Remove(std::uint64_t offer_id) override;
  void Arm(FailPoints& failpoints) override { failpoints_ = &failpoints; }
  double core_seconds() override { return service_.core_seconds(); }

 private:
  WakeUp wake_;
  OfferBook book_;
  std::unique_ptr<ReadableOffers> readable_;  // null: no one-sided reads
  std::atomic<FailPoints*> failpoints_{nullptr};
  ControlAddress address_{.channel = "ucx"};  // without its key
  mutable Invitations invitations_;           // one for each address that was told
  UniqueFd listener_;                         // until the service thread takes it over
  ServiceThread service_;
};

}  // namespace layercast::ucx_channel
