// The chunks that are under way on a data channel, each with the memory that it goes to. Their number is bounded: they
// are the receiver's credits. Used by the fetching half of a session.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "layercast/memory.h"
#include "src/base/memory/buffer_for.h"
#include "src/session/chunks/chunk_memory.h"
#include "src/session/chunks/copy_out.h"
#include "src/session/chunks/kept_chunks.h"
#include "src/tensor/region_views.h"
#include "src/transport/channel/channel.h"

namespace layercast {

// A chunk that has come. Its bytes stay until ChunkWindow::Done. Value; the views borrow the bytes.
struct ArrivedChunk {
  std::uint32_t chunk = 0;
  std::vector<RegionView> views;  // one for each region
  PendingDigest digest;
  ChunkMemory* memory = nullptr;
  std::uint64_t moved = 0;  // bytes that came over the channel for it
};

// Resource; one thread only. The channel's end and the memory outlive it; the end is closed before it goes.
class ChunkWindow {
 public:
  struct Memory {
    std::size_t slots = 4;
    ChunkPlaces places;
    KeptChunks* kept = nullptr;  // where chunks go that this receiver relays or keeps; null: to slots, which are reused
    bool copies_out = false;     // copies also what a channel hands out views of; for `kept`, or to trust no peer
    WorkerPool* pool = nullptr;  // shares the copying out; null: the fetching thread does it alone
  };
  ChunkWindow(FetchingEnd& end, const Memory& memory) : end_(end), memory_(memory), place_(PlaceOf(end, memory)) {}

  bool HasRoom() const { return in_flight_ < memory_.slots; }
  bool empty() const { return in_flight_ == 0; }
  const Memory& memory() const { return memory_; }

  void Submit(std::uint32_t chunk, std::uint64_t offer, std::span<const Region> regions, std::uint64_t bytes) {
    std::span<std::byte> destination;
    if (!end_.attaches()) destination = PlaceFor(chunk, bytes);
    end_.Submit({.ticket = chunk, .offer_id = offer, .regions = regions, .destination = destination});
    ++in_flight_;
  }
  std::optional<ArrivedChunk> Poll(Deadline deadline) {
    std::optional<ChunkCompletion> completion = end_.Poll(deadline);
    if (!completion) return std::nullopt;
    if (memory_.copies_out && end_.attaches()) CopyOut(*completion);
    PendingDigest digest = place_.BeginDigest(completion->views);
    const std::uint64_t moved = NumBytes(completion->views);
    return ArrivedChunk{static_cast<std::uint32_t>(completion->ticket), std::move(completion->views), std::move(digest),
                        &place_, moved};
  }
  // Checks that what was read from views of this offer was its bytes. They may not be, because a publisher lets go of
  // an offer if its receiver was silent for long (was frozen, say). Throws kNotFound. Call it when nothing is under
  // way.
  void ExpectOffered(std::uint64_t offer) {
    if (!end_.attaches() || memory_.copies_out) return;
    end_.Submit({.ticket = ~std::uint64_t{0}, .offer_id = offer, .regions = {}, .destination = {}});
    end_.Poll(Deadline(Deadline::Clock::now()));
  }
  // Says that the chunk was given to its consumer. Its slot is free once the memory's consumers have passed this point.
  void Done(std::uint32_t chunk) {
    --in_flight_;
    const auto used = used_.find(chunk);
    if (used == used_.end()) return;
    free_.push_back({std::move(used->second), place_.Now()});
    used_.erase(used);
  }

 private:
  struct FreeSlot {
    Buffer memory;
    ChunkMemory::Mark read = 0;  // its last chunk has been read when consumers have passed this
  };

  // Where chunks go. Those that this receiver relays or keeps lie in host memory.
  static ChunkMemory& PlaceOf(const FetchingEnd& end, const Memory& memory) {
    const ChunkPlaces& places = memory.places;
    const bool device = places.device != nullptr && memory.kept == nullptr && !end.attaches() &&
                        end.writes_to(places.device->resource().device());
    return device ? *places.device : places.host;
  }
  std::span<std::byte> PlaceFor(std::uint32_t chunk, std::uint64_t bytes) {
    return memory_.kept != nullptr ? memory_.kept->Place(chunk) : SlotFor(chunk, bytes);
  }
  // Takes the slot that has been free for longest. If it is too small it is replaced; so all slots grow to the size of
  // the largest chunk, and stay.
  std::span<std::byte> SlotFor(std::uint32_t chunk, std::uint64_t bytes) {
    FreeSlot slot;
    if (!free_.empty()) {
      slot = std::move(free_.front());
      free_.pop_front();
    }
    if (slot.memory.size() < bytes) {
      slot.memory = Buffer();
      slot = {BufferFor("a chunk that comes", place_.resource(), static_cast<std::size_t>(bytes)), place_.Now()};
    }
    place_.Await(slot.read);
    return (used_[chunk] = std::move(slot.memory)).span().first(static_cast<std::size_t>(bytes));
  }
  void CopyOut(ChunkCompletion& completion) {
    const auto chunk = static_cast<std::uint32_t>(completion.ticket);
    completion.views =
        layercast::CopyOut(completion.views, PlaceFor(chunk, NumBytes(completion.views)).data(), memory_.pool);
  }

  FetchingEnd& end_;
  const Memory memory_;
  ChunkMemory& place_;
  std::size_t in_flight_ = 0;
  std::map<std::uint32_t, Buffer> used_;
  std::deque<FreeSlot> free_;
};

}  // namespace layercast
