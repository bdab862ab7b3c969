// The publisher's end of the cuda_ipc channel: the arena on its device, and a service thread ("lc-cuda-ipc") that owns
// every receiver's connection.
#pragma once

#include <atomic>
#include <string>

#include "src/net/service_thread.h"
#include "src/net/token.h"
#include "src/net/wake_up.h"
#include "src/transport/channel/channel.h"
#include "src/transport/cuda_ipc/copy_in.h"
#include "src/transport/cuda_ipc/cuda_ipc_transport.h"
#include "src/transport/cuda_ipc/offers.h"
#include "src/transport/cuda_ipc/segments/cuda_ipc_arena.h"

namespace layercast::cuda_ipc_channel {

// Thread-safe.
class CudaIpcOfferingEnd final : public OfferingEnd {
 public:
  explicit CudaIpcOfferingEnd(CudaIpcParts parts);
  std::string address() const override;
  void TakeBack(const std::string& address) override;
  bool copies() const override { return true; }
  bool reads_from(const Device& device) const override { return device == parts_.device->device_memory().device(); }
  void Add(const Offer& offer) override;
  void Remove(std::uint64_t offer_id) override;
  void Arm(FailPoints& failpoints) override { failpoints_ = &failpoints; }
  double core_seconds() override { return service_.core_seconds(); }

 private:
  const CudaIpcParts parts_;
  // Destroyed from last to first: the connections (service_), the offers, what is copying them in, and their memory.
  Arena arena_;
  CopyIn copy_in_;
  Offers offers_;
  WakeUp wake_;
  std::atomic<FailPoints*> failpoints_{nullptr};
  std::string name_;
  mutable Invitations invitations_;  // one for each address that was told
  UniqueFd listener_;                // until the service thread takes it over
  ServiceThread service_;
};

}  // namespace layercast::cuda_ipc_channel
