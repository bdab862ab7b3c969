// The publisher's end of the nccl channel: a listening socket, and one service thread ("lc-nccl") that owns every
// receiver's connection, and the fleets that receivers are in.
#pragma once

#include <atomic>
#include <string>

#include "src/net/control_socket.h"
#include "src/net/service_thread.h"
#include "src/net/wake_up.h"
#include "src/transport/channel/channel.h"
#include "src/transport/channel/offer_book.h"
#include "src/transport/nccl/nccl_transport.h"

namespace layercast::nccl_channel {

// Thread-safe.
class NcclOfferingEnd final : public OfferingEnd {
 public:
  // Throws kInvalidArgument.
  NcclOfferingEnd(NcclParts parts, const OfferingOptions& options);
  std::string address() const override;
  void TakeBack(const std::string& address) override;
  bool reads_from(const Device& device) const override { return device == parts_.device->device_memory().device(); }
  void Add(const Offer& offer) override { book_.Add(offer); }
  // No receiver has to be cut: only copies on the publisher's own device read the offer's memory, and they wait for no
  // receiver.
  void Remove(std::uint64_t offer_id) override { book_.Remove(offer_id); }
  void Arm(FailPoints& failpoints) override { failpoints_ = &failpoints; }
  double core_seconds() override { return service_.core_seconds(); }

 private:
  const NcclParts parts_;
  WakeUp wake_;
  OfferBook book_;
  std::atomic<FailPoints*> failpoints_{nullptr};
  ControlAddress address_{.channel = "nccl"};  // without its key
  mutable Invitations invitations_;            // one for each address that was told
  UniqueFd listener_;                          // until the service thread takes it over
  ServiceThread service_;
};

}  // namespace layercast::nccl_channel
