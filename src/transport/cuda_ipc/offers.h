// What a publisher offers by cuda_ipc, as it lies in the arena. Part of CudaIpcOfferingEnd.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "src/transport/channel/channel.h"
#include "src/transport/cuda_ipc/copy_in.h"
#include "src/transport/cuda_ipc/segments/cuda_ipc_arena.h"

namespace layercast::cuda_ipc_channel {

// An offer in the arena. Immutable except for `removed`. Its destruction gives the memory back to the arena: once the
// offer is removed, and every receiver is done with what it was granted.
struct OfferInArena {
  std::vector<OfferedTensor> tensors;  // in the arena
  std::vector<Block> blocks;           // one for each tensor
  std::uint64_t copied = 0;            // CopyIn's mark behind its copies
  std::atomic<bool> removed{false};
};

// Thread-safe.
class Offers {
 public:
  Offers(Arena& arena, CopyIn& copy_in) : arena_(arena), copy_in_(copy_in) {}

  // Queues the copies into the arena. When it returns, receivers can ask for the offer.
  void Add(const Offer& offer);
  // When it returns, nobody is granted anything of the offer any more, and the offered memory is not read any more. It
  // waits for the device as long as that reads.
  void Remove(std::uint64_t offer_id);
  // Throws kNotFound. The other owners are the receivers that were granted something of the offer.
  std::shared_ptr<OfferInArena> Find(std::uint64_t offer_id) const;

 private:
  Arena& arena_;
  CopyIn& copy_in_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<OfferInArena>> offers_;  // guarded by mutex_; null: Add is not done yet
};

}  // namespace layercast::cuda_ipc_channel
