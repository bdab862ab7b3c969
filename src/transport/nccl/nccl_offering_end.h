// The publisher's end of the nccl channel: a listening socket, and one service thread ("lc-nccl") that owns every
// receiver's connection.
#pragma once

#include <atomic>
#include <list>
#include <string>
#include <thread>

#include "src/transport/channel.h"
#include "src/transport/control_socket.h"
#include "src/transport/nccl/nccl_transport.h"
#include "src/transport/nccl/receiver.h"
#include "src/transport/offer_book.h"
#include "src/transport/wake_fd.h"

namespace layercast::nccl_channel {

// Moves every receiver's pieces on, in turn: nobody's slowness is another's. One thread only (the service's).
class Service {
 public:
  Service(UniqueFd listener, const ReceiverContext& context, const WakeFd& wake)
      : listener_(std::move(listener)), context_(context), wake_(wake) {}
  void Run(const std::stop_token& stop);

 private:
  bool ProgressAll();  // true when something moved
  // Waits for the sockets, no longer than that, and takes what they have.
  void TakeMessages(std::chrono::microseconds timeout);
  void Accept();
  // Runs `step` for each receiver; what it throws costs that one's connection.
  template <typename Step>
  void ForEach(const Step& step);

  const UniqueFd listener_;
  const ReceiverContext context_;
  const WakeFd& wake_;
  std::list<Receiver> receivers_;
  std::uint64_t epochs_ = 0;  // so far
};

// Thread-safe.
class NcclOfferingEnd final : public OfferingEnd {
 public:
  NcclOfferingEnd(NcclParts parts, const std::string& bind_host);
  ~NcclOfferingEnd() override;
  std::string address() const override { return address_; }
  void Add(const Offer& offer) override { book_.Add(offer); }
  void Remove(std::uint64_t offer_id) override;
  void Arm(FailPoints& failpoints) override { failpoints_ = &failpoints; }

 private:
  const NcclParts parts_;
  WakeFd wake_;
  OfferBook book_;
  std::string address_;
  std::atomic<FailPoints*> failpoints_{nullptr};
  std::jthread thread_;
};

}  // namespace layercast::nccl_channel
