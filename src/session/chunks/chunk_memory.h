// The memory that chunks arrive in, if the channel does not hand out its own, and what a session does with bytes there:
// it digests them, and reuses the memory. Host memory is here; an engine on a device brings its own
// (engine_side/reload/device/device_chunks.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "layercast/memory.h"
#include "layercast/version.h"
#include "src/session/chunks/chunk_digests.h"
#include "src/tensor/region.h"

namespace layercast {

// A digest that may still be under way. It is called once, and waits for the digest. Until then the bytes must not
// change.
using PendingDigest = std::function<Digest()>;

// Resource; one thread only.
class ChunkMemory {
 public:
  // A point in the consumers' work: after all that they were asked to do so far.
  using Mark = std::uint64_t;

  virtual ~ChunkMemory() = default;
  virtual MemoryResource& resource() = 0;
  // Begins the digest of the views' bytes, one after the other.
  virtual PendingDigest BeginDigest(std::span<const RegionView> views) = 0;
  // True if digests are queued behind all work that anyone asked for before, so that they should be begun early.
  virtual bool queues_digests() const { return false; }
  // Views of a copy of the bytes in which one byte is changed, for a failpoint. Valid until the next call.
  virtual std::vector<RegionView> Corrupted(std::span<const RegionView> views) = 0;
  virtual Mark Now() = 0;
  // Waits until the consumers have passed the mark. Then none of them reads any more what they were given before it.
  virtual void Await(Mark mark) = 0;
};

// Host memory, whose consumers are done when they return. Resource; one thread only.
class HostChunkMemory final : public ChunkMemory {
 public:
  // `pool` shares the digesting; if it is null, the calling thread does all of it.
  explicit HostChunkMemory(MemoryResource& memory, WorkerPool* pool = nullptr) : memory_(memory), pool_(pool) {}

  MemoryResource& resource() override { return memory_; }
  PendingDigest BeginDigest(std::span<const RegionView> views) override {
    return [pool = pool_, views = std::vector<RegionView>(views.begin(), views.end())] {
      return pool == nullptr ? DigestOfViews(views) : DigestOfViews(views, *pool);
    };
  }
  std::vector<RegionView> Corrupted(std::span<const RegionView> views) override;
  Mark Now() override { return 0; }
  void Await(Mark /*mark*/) override {}

 private:
  MemoryResource& memory_;
  WorkerPool* const pool_;
  std::vector<std::byte> corrupted_;
};

// The host's memory, and a device's if the channel writes there. Value; borrows both.
struct ChunkPlaces {
  ChunkMemory& host;
  ChunkMemory* device = nullptr;
};

}  // namespace layercast
