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
#include "src/session/relayed_chunks.h"
#include "src/transport/channel.h"

namespace layercast {

// Resource; one thread only. The channel's end and the memory outlive it; the end is closed before it goes.
class ChunkWindow {
 public:
  struct Memory {
    std::size_t slots = 4;
    MemoryResource& resource;
    RelayedChunks* kept = nullptr;  // where chunks go that are served on; null: to slots, which are used again
    bool copies_out = false;        // also what a channel hands out views of: `kept` needs it, and who trusts nobody
  };
  ChunkWindow(FetchingEnd& end, const Memory& memory) : end_(end), memory_(memory) {}

  bool HasRoom() const { return in_flight_ < memory_.slots; }
  bool empty() const { return in_flight_ == 0; }

  void Submit(std::uint32_t chunk, std::uint64_t offer, std::span<const Region> regions, std::uint64_t bytes) {
    std::span<std::byte> destination;
    if (!end_.attaches()) destination = PlaceFor(chunk, bytes);
    end_.Submit({.ticket = chunk, .offer_id = offer, .regions = regions, .destination = destination});
    ++in_flight_;
  }
  std::optional<ChunkCompletion> Poll(Deadline deadline) {
    std::optional<ChunkCompletion> completion = end_.Poll(deadline);
    if (completion && memory_.copies_out && end_.attaches()) CopyOut(*completion);
    return completion;
  }
  // What was read from views of this offer was its bytes: the publisher has not let go of it meanwhile, which it does
  // with a receiver that was silent for long (a frozen one). Throws kNotFound. To be called once nothing is under way.
  void ExpectOffered(std::uint64_t offer) {
    if (!end_.attaches() || memory_.copies_out) return;
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
  std::span<std::byte> PlaceFor(std::uint32_t chunk, std::uint64_t bytes) {
    return memory_.kept != nullptr ? memory_.kept->Place(chunk) : SlotFor(chunk, bytes);
  }
  std::span<std::byte> SlotFor(std::uint32_t chunk, std::uint64_t bytes) {
    // The largest free slot; one that is too small is replaced, so that all grow to the largest chunk and stay.
    Buffer slot;
    if (!free_.empty()) {
      slot = std::move(free_.back());
      free_.pop_back();
    }
    if (slot.size() < bytes) {
      slot = Buffer();
      slot = Buffer(memory_.resource, static_cast<std::size_t>(bytes));
    }
    return (used_[chunk] = std::move(slot)).span().first(static_cast<std::size_t>(bytes));
  }
  void CopyOut(ChunkCompletion& completion) {
    std::uint64_t bytes = 0;
    for (const RegionView& view : completion.views) bytes += view.num_bytes();
    std::byte* at = PlaceFor(static_cast<std::uint32_t>(completion.ticket), bytes).data();
    for (RegionView& view : completion.views) {
      Pack(view, at);
      view = PackedAt(at, view.row_bytes, view.rows);
      at += view.num_bytes();
    }
  }

  FetchingEnd& end_;
  const Memory memory_;
  std::size_t in_flight_ = 0;
  std::map<std::uint32_t, Buffer> used_;
  std::vector<Buffer> free_;
};

}  // namespace layercast
