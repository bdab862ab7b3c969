// The memory in which a stream's tensors lie until all ranks have taken them. Small tensors share blocks, each of which
// is offered once and used again: to offer memory on every channel, and to find it there, costs far more than to copy a
// small tensor. Used by the walks of streams.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <string>

#include "layercast/memory.h"
#include "src/session/offer/serve_context.h"
#include "src/transport/channel/carried_offer.h"

namespace layercast {

// Where a tensor lies. Value.
struct StreamPlace {
  std::span<std::byte> memory;
  std::uint64_t offer_id = 0;
  std::uint64_t offset = 0;  // of the tensor in the offer, which is of one run of bytes
};

// Resource; one thread only. If a channel copies what it offers, each tensor has memory of its own.
class StreamBlocks {
 public:
  // How many tensors may wait: each costs a message in a socket's queue.
  static constexpr std::size_t kMostWaiting = 256;

  // Offers have the numbers from `first_offer_id` on, at most as many as there are tensors.
  StreamBlocks(const ServeContext& context, std::uint64_t first_offer_id)
      : context_(context), next_offer_id_(first_offer_id) {}

  // Whether there is room for a tensor of so many bytes if all blocks together may have `most`. One tensor always fits
  // if none waits. Frees idle blocks if that makes room.
  bool HasRoom(std::size_t bytes, std::uint64_t most);
  // Places the next tensor. To be called when HasRoom has said so. Throws kResourceExhausted, naming the tensor.
  StreamPlace Place(const std::string& name, std::size_t bytes, std::uint64_t most);
  // Offers the tensor that was placed last, when its bytes are there; so many of them if it has memory of its own.
  void Offer(StreamPlace& place, std::size_t bytes);
  // Says that all ranks have taken the first `tensors` that were placed.
  void Retire(std::uint32_t tensors);
  // Says that somebody may go on reading what lies here now, and will not be waited for: no tensor is placed there, and
  // the offers go with the tensors.
  void Seal();
  void Clear() { blocks_.clear(); }

  std::size_t waiting() const { return placed_ - retired_; }

 private:
  struct Block {
    Buffer memory;
    std::optional<CarriedOffer> offer;  // destroyed before the memory
    bool reused = false;                // holds several tensors, and others when these are gone
    std::size_t used = 0;               // bytes
    std::uint32_t last = 0;             // the number of the last tensor that was placed here, from 1 on

    bool Fits(std::size_t bytes) const { return reused && memory.size() - used >= bytes; }
  };

  // The size of blocks that tensors of so many bytes share; 0: they do not.
  std::size_t SharedBytes(std::size_t bytes, std::uint64_t most) const;
  Block* FindRoom(std::size_t bytes);

  const ServeContext& context_;
  std::uint64_t next_offer_id_;
  std::list<Block> blocks_;
  Block* last_ = nullptr;        // where the last tensor was placed
  std::uint64_t allocated_ = 0;  // bytes of all blocks
  std::uint32_t placed_ = 0;
  std::uint32_t retired_ = 0;
};

}  // namespace layercast
