// The memory in which pieces wait at both ends of the nccl channel. It is kept from one epoch to the next: taking
// pinned memory or giving it back may wait for the whole device, transfers of other connections included, and device
// memory would have to be mapped again.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "layercast/memory.h"
#include "src/device/channel_device.h"

namespace layercast::nccl_channel {

// Where a piece waits: in device memory, and also in pinned host memory if the device does not reach its source or
// destination by itself.
struct Slot {
  Buffer device;
  Buffer pinned;
};

// Resource; one thread only. Outlives what it lends.
class Slots {
 public:
  struct Return {
    Slots* slots;
    void operator()(Slot* slot) const { slots->spare_.emplace_back(slot); }
  };
  // A slot on loan, which comes back by itself. It must be held until nothing reads or writes it any more.
  using Lent = std::unique_ptr<Slot, Return>;

  // `slot_bytes`: of each slot.
  Slots(ChannelDevice& device, std::size_t slot_bytes) : device_(device), slot_bytes_(slot_bytes) {}

  std::size_t slot_bytes() const { return slot_bytes_; }
  // Sets how many slots there may be at most. None is made before it is needed.
  void Allow(std::size_t most) { most_ = most; }
  std::size_t num_spare() const { return spare_.size() + (most_ > made_ ? most_ - made_ : 0); }
  // Only when num_spare() is not 0. Throws kResourceExhausted.
  Lent Take();
  // The slot's pinned memory, made at its first use. If the device reaches all sources and destinations, none is made.
  std::byte* PinnedOf(Slot& slot);

 private:
  ChannelDevice& device_;
  const std::size_t slot_bytes_;
  std::size_t most_ = 0;
  std::size_t made_ = 0;
  std::vector<std::unique_ptr<Slot>> spare_;
};

}  // namespace layercast::nccl_channel
