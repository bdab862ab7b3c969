// The memory that chunks come to, where a channel does not hand out its own, and what a session does with bytes there:
// it digests them, and uses the memory again. The host's is here; an engine on a device brings its own
// (engine_side/device/device_chunks.h).
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "layercast/memory.h"
#include "layercast/version.h"
#include "src/session/chunk_digests.h"
#include "src/tensor/region.h"

namespace layercast {

// A digest that may still be under way: called once, it waits for it. Before that the bytes stay as they are.
using PendingDigest = std::function<Digest()>;

// One thread only.
class ChunkMemory {
 public:
  // A place behind all that was asked of the memory's consumers so far.
  using Mark = std::uint64_t;

  virtual ~ChunkMemory() = default;
  virtual MemoryResource& resource() = 0;
  // The digest of the views' bytes, one after the other.
  virtual PendingDigest BeginDigest(std::span<const RegionView> views) = 0;
  // Digests are made behind all other work that was asked for before, by whomever: to be begun early.
  virtual bool queues_digests() const { return false; }
  // Views of the same bytes, but for one that is another: what a failpoint makes of a chunk. Valid until the next call.
  virtual std::vector<RegionView> Corrupted(std::span<const RegionView> views) = 0;
  virtual Mark Now() = 0;
  // Until the consumers are past it: then nobody reads any more what was given to them before.
  virtual void Await(Mark mark) = 0;
};

// Consumers are through when they return.
class HostChunkMemory final : public ChunkMemory {
 public:
  explicit HostChunkMemory(MemoryResource& memory) : memory_(memory) {}

  MemoryResource& resource() override { return memory_; }
  PendingDigest BeginDigest(std::span<const RegionView> views) override {
    return [views = std::vector<RegionView>(views.begin(), views.end())] { return DigestOfViews(views); };
  }
  std::vector<RegionView> Corrupted(std::span<const RegionView> views) override;
  Mark Now() override { return 0; }
  void Await(Mark /*mark*/) override {}

 private:
  MemoryResource& memory_;
  std::vector<std::byte> corrupted_;
};

// The host's, and perhaps a device's, where the channel writes there. Borrows both.
struct ChunkPlaces {
  ChunkMemory& host;
  ChunkMemory* device = nullptr;
};

}  // namespace layercast
