// What a publisher offers by cuda_ipc, as it lies in the arena.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "src/transport/channel.h"
#include "src/transport/cuda_ipc/arena.h"
#include "src/transport/cuda_ipc/copy_in.h"

namespace layercast::cuda_ipc_channel {

// Immutable but for `removed`. The memory goes back to the arena with it: when the offer is removed, and every receiver
// is done with what it was granted.
struct OfferInArena {
  std::vector<OfferedTensor> tensors;  // in the arena
  std::vector<Block> blocks;           // of each
  std::uint64_t copied = 0;            // the mark of CopyIn
  std::atomic<bool> removed{false};
};

// Thread-safe.
class Offers {
 public:
  Offers(Arena& arena, CopyIn& copy_in) : arena_(arena), copy_in_(copy_in) {}

  // Copies it in; when it returns it can be asked for.
  void Add(const Offer& offer);
  // When it returns, the offered memory is not read any more, and nobody is granted anything of it.
  void Remove(std::uint64_t offer_id);
  // Throws kNotFound. Second owners: the receivers that were granted something.
  std::shared_ptr<OfferInArena> Find(std::uint64_t offer_id) const;

 private:
  Arena& arena_;
  CopyIn& copy_in_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<OfferInArena>> offers_;  // guarded by mutex_; null: it is being copied in
};

}  // namespace layercast::cuda_ipc_channel
