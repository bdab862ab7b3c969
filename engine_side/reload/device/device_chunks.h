// Chunks that a channel brings straight to an engine's device, not through host memory: the slots there, and digests
// whose leaves are computed by the device. Nothing waits for a chunk: its digest is requested when it comes, and waited
// for when it is needed. A slot is written again only when the stream is past everything that reads it. Used by
// DeviceWork.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "src/base/memory/caching_memory.h"
#include "src/device/device_stream.h"
#include "src/session/chunks/chunk_memory.h"

namespace layercast {

// Resource; one thread only. The stream must outlive it, and all consumers must queue their work on it.
class DeviceChunks final : public ChunkMemory {
 public:
  explicit DeviceChunks(DeviceStream& stream) : stream_(stream), slots_(stream.memory()) {}
  ~DeviceChunks() override;

  // Whether the address lies in one of the slots. If not, it is in host memory.
  bool Has(const std::byte* address) const { return slots_.Has(address); }
  // Frees the slots that are kept and not in use.
  void ReleaseIdle() { slots_.ReleaseIdle(); }

  MemoryResource& resource() override { return slots_; }
  PendingDigest BeginDigest(std::span<const RegionView> views) override;
  bool queues_digests() const override { return true; }
  // Changes a byte of the chunk, in its slot.
  std::vector<RegionView> Corrupted(std::span<const RegionView> views) override;
  Mark Now() override { return stream_.Record(); }
  void Await(Mark mark) override { stream_.Wait(mark); }

 private:
  // The memory of the slots. Slots that are freed are kept for the next reload. One thread only.
  class Slots final : public MemoryResource {
   public:
    explicit Slots(MemoryResource& upstream) : memory_(upstream) {}
    std::byte* Allocate(std::size_t bytes) override;
    void Deallocate(std::byte* address, std::size_t bytes) noexcept override;
    Device device() const override { return memory_.device(); }
    bool Has(const std::byte* address) const;
    void ReleaseIdle() { memory_.Release(); }

   private:
    CachingMemory memory_;
    std::map<const std::byte*, std::size_t, std::greater<>> used_;  // address of each slot in use -> its bytes
  };
  // The memory for the leaf digests of a chunk.
  struct Leaves {
    Buffer device;
    Buffer pinned;
    DeviceStream::Ticket arrived = 0;
  };
  std::shared_ptr<Leaves> FreeLeaves(std::size_t bytes);

  DeviceStream& stream_;
  Slots slots_;
  std::vector<std::shared_ptr<Leaves>> leaves_;  // the second owner is a digest under way
};

}  // namespace layercast
