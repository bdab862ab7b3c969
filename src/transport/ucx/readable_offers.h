// What of a publisher's offers is registered for one-sided reads: each tensor when it is asked for first, once for all
// receivers, until its offer is removed.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "src/transport/offer_book.h"
#include "src/transport/ucx/remote_reads.h"

namespace layercast::ucx_channel {

// PlaceOf: one thread only (the service's); the rest is thread-safe.
class ReadableOffers {
 public:
  explicit ReadableOffers(std::unique_ptr<RemoteMemory> memory) : memory_(std::move(memory)) {}

  RemoteMemory& memory() { return *memory_; }
  // Whether memory could be registered so far: no use in promising reads of the rest.
  bool usable() const { return usable_; }
  // Where the tensor, which has bytes, lies for those who read it; between the offer's Begin and End alone. Throws
  // kUnsupported.
  RemotePlace PlaceOf(const Offered& offered, std::uint32_t tensor);
  // Its keys are worth nothing any more. Nobody reads it, or will: its removal has waited for that.
  void Forget(const Offered& offered);

 private:
  using Tensors = std::map<std::uint32_t, std::unique_ptr<RegisteredMemory>>;

  const RegisteredMemory* Find(const Offered& offered, std::uint32_t tensor) const;

  const std::unique_ptr<RemoteMemory> memory_;
  std::atomic<bool> usable_{true};
  mutable std::mutex mutex_;
  std::map<const Offered*, Tensors> registered_;  // guarded by mutex_
};

}  // namespace layercast::ucx_channel
