// The tensors of a publisher's offers that are registered for one-sided reads: each is registered when it is first
// asked for, once for all receivers, and until its offer is removed. Part of UcxOfferingEnd.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "src/transport/channel/offer_book.h"
#include "src/transport/ucx/wire/remote_reads.h"

namespace layercast::ucx_channel {

// Resource; thread-safe, but PlaceOf is for one thread only (the service thread).
class ReadableOffers {
 public:
  explicit ReadableOffers(std::unique_ptr<RemoteMemory> memory) : memory_(std::move(memory)) {}

  RemoteMemory& memory() { return *memory_; }
  // False once memory could not be registered: then there is no use in promising reads to anybody else.
  bool usable() const { return usable_; }
  // Where receivers read this tensor, which must not be empty; registers it at the first call. Only between the offer's
  // Begin and End (OfferBook). Throws kUnsupported if the memory cannot be registered.
  RemotePlace PlaceOf(const Offered& offered, std::uint32_t tensor);
  // Deregisters what is registered of this offer, so that its keys are worth nothing any more. Only after
  // OfferBook::Remove has returned it: then nobody reads it, or will.
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
