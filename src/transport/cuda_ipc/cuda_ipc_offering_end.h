// The publisher's end of the cuda_ipc channel: the arena on its device, and a service thread ("lc-cuda-ipc") that owns
// every receiver's connection.
#pragma once

#include <atomic>
#include <list>
#include <string>
#include <thread>

#include "src/transport/channel.h"
#include "src/transport/cuda_ipc/arena.h"
#include "src/transport/cuda_ipc/copy_in.h"
#include "src/transport/cuda_ipc/cuda_ipc_transport.h"
#include "src/transport/cuda_ipc/offers.h"
#include "src/transport/cuda_ipc/receiver.h"
#include "src/transport/wake_fd.h"

namespace layercast::cuda_ipc_channel {

// Answers every receiver in turn. One thread only (the service's).
class Service {
 public:
  Service(UniqueFd listener, const ReceiverContext& context, const WakeFd& wake)
      : listener_(std::move(listener)), context_(context), wake_(wake) {}
  void Run(const std::stop_token& stop);

 private:
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
};

// Thread-safe.
class CudaIpcOfferingEnd final : public OfferingEnd {
 public:
  explicit CudaIpcOfferingEnd(CudaIpcParts parts);
  ~CudaIpcOfferingEnd() override;
  std::string address() const override;
  void Add(const Offer& offer) override;
  void Remove(std::uint64_t offer_id) override;
  void Arm(FailPoints& failpoints) override { failpoints_ = &failpoints; }

 private:
  const CudaIpcParts parts_;
  // Destroyed last to first: the connections, then offers, then what is copying them in, then their memory.
  Arena arena_;
  CopyIn copy_in_;
  Offers offers_;
  WakeFd wake_;
  std::string name_;
  std::atomic<FailPoints*> failpoints_{nullptr};
  std::jthread thread_;
};

}  // namespace layercast::cuda_ipc_channel
