// Chunks under way on a data channel, each with the memory that it goes to: the receiver's credits. Used by the
// fetching half of a session.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "layercast/memory.h"
#include "src/transport/channel.h"

namespace layercast {

// Resource; one thread only. The channel's end and the memory outlive it; the end is closed before it goes.
class ChunkWindow {
 public:
  ChunkWindow(FetchingEnd& end, std::size_t slots, MemoryResource& memory)
      : end_(end), slots_(slots), memory_(memory) {}

  bool HasRoom() const { return in_flight_ < slots_; }
  bool empty() const { return in_flight_ == 0; }

  void Submit(std::uint32_t chunk, std::uint64_t offer, std::span<const Region> regions, std::uint64_t bytes) {
    std::span<std::byte> destination;
    if (!end_.attaches()) destination = SlotFor(chunk, bytes);
    end_.Submit({.ticket = chunk, .offer_id = offer, .regions = regions, .destination = destination});
    ++in_flight_;
  }
  std::optional<ChunkCompletion> Poll(Deadline deadline) { return end_.Poll(deadline); }
  // What was read from views of this offer was its bytes: the publisher has not let go of it meanwhile, which it does
  // with a receiver that was silent for long (a frozen one). Throws kNotFound. To be called once nothing is under way.
  void ExpectOffered(std::uint64_t offer) {
    if (!end_.attaches()) return;
    end_.Submit({.ticket = ~std::uint64_t{0}, .offer_id = offer, .regions = {}, .destination = {}});
    end_.Poll(Deadline(Deadline::Clock::now()));
  }
  // The chunk has been consumed: its slot is free.
  void Done(std::uint32_t chunk) {
    --in_flight_;
    const auto used = used_.find(chunk);
    if (used == used_.end()) return;
    free_.push_back(std::move(used->second));
    used_.erase(used);
  }

 private:
  std::span<std::byte> SlotFor(std::uint32_t chunk, std::uint64_t bytes) {
    // The largest free slot; one that is too small is replaced, so that all grow to the largest chunk and stay.
    Buffer slot;
    if (!free_.empty()) {
      slot = std::move(free_.back());
      free_.pop_back();
    }
    if (slot.size() < bytes) {
      slot = Buffer();
      slot = Buffer(memory_, static_cast<std::size_t>(bytes));
    }
    return (used_[chunk] = std::move(slot)).span().first(static_cast<std::size_t>(bytes));
  }

  FetchingEnd& end_;
  const std::size_t slots_;
  MemoryResource& memory_;
  std::size_t in_flight_ = 0;
  std::map<std::uint32_t, Buffer> used_;
  std::vector<Buffer> free_;
};

}  // namespace layercast
