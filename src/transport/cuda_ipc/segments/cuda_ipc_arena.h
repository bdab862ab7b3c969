// The publisher's device memory that receivers map: a few segments. The next version uses freed ranges again. Part of
// CudaIpcOfferingEnd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "src/transport/channel/free_ranges.h"
#include "src/transport/cuda_ipc/segments/driver.h"

namespace layercast::cuda_ipc_channel {

// One segment of the arena. `free` is guarded by the arena's mutex; the rest is immutable.
struct Segment {
  Segment(std::uint32_t its_number, std::unique_ptr<OwnSegment> its_memory)
      : number(its_number), memory(std::move(its_memory)), free(memory->size()) {}

  const std::uint32_t number;  // among all that the arena ever had, from 1 on
  const std::unique_ptr<OwnSegment> memory;
  FreeRanges free;
};

class Arena;

// A range of a segment, which the destructor gives back. Resource; move-only. A block of no bytes has no segment.
class Block {
 public:
  Block() = default;
  Block(Arena& arena, std::shared_ptr<Segment> segment, std::size_t offset, std::size_t bytes)
      : arena_(&arena), segment_(std::move(segment)), offset_(offset), bytes_(bytes) {}
  Block(Block&& other) noexcept { Swap(other); }
  Block& operator=(Block&& other) noexcept {
    Swap(other);
    return *this;
  }
  ~Block();

  // The second owner is the arena, as long as it keeps the segment.
  const std::shared_ptr<Segment>& segment() const { return segment_; }
  std::size_t offset() const { return offset_; }
  std::byte* data() const { return segment_ == nullptr ? nullptr : segment_->memory->base() + offset_; }

 private:
  void Swap(Block& other) {
    std::swap(arena_, other.arena_);
    std::swap(segment_, other.segment_);
    std::swap(offset_, other.offset_);
    std::swap(bytes_, other.bytes_);
  }

  Arena* arena_ = nullptr;
  std::shared_ptr<Segment> segment_;
  std::size_t offset_ = 0;
  std::size_t bytes_ = 0;
};

// Resource; thread-safe; outlives its blocks.
class Arena {
 public:
  explicit Arena(IpcDriver& driver) : driver_(driver) {}

  // Returns a block for each size. Blocks that do not fit into what is free go into one new segment. Before it is made,
  // segments that are wholly free are dropped, if they may go while others have them mapped (kept_by_mappings): sizes
  // have changed, and such segments would only pile up. Throws what IpcDriver::MakeSegment throws.
  std::vector<Block> Allocate(std::span<const std::size_t> sizes);
  std::size_t segments() const;

 private:
  friend class Block;
  void GiveBack(Segment& segment, std::size_t offset, std::size_t bytes) noexcept;
  // Takes the smallest free range into which `bytes` fit. If they fit nowhere, the block has no segment.
  Block TakeBestFit(std::size_t bytes);
  void AddSegment(std::size_t bytes);

  IpcDriver& driver_;
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Segment>> segments_;  // guarded by mutex_; second owners: blocks
  std::uint32_t made_ = 0;                          // guarded by mutex_
};

}  // namespace layercast::cuda_ipc_channel
