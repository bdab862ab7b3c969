// Memory that pieces wait in. It is kept from one epoch to the next: taking pinned memory or giving it back may wait
// for the whole device, transfers of other connections among it, and device memory would have to be mapped again.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "layercast/memory.h"
#include "src/transport/device/channel_device.h"

namespace layercast::nccl_channel {

// Where a piece waits: in the device's memory, and in the host's where the device does not reach what it is for.
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
  // Comes back by itself: not before what reads or writes it has ended.
  using Lent = std::unique_ptr<Slot, Return>;

  // Each of so many bytes.
  Slots(ChannelDevice& device, std::size_t slot_bytes) : device_(device), slot_bytes_(slot_bytes) {}

  std::size_t slot_bytes() const { return slot_bytes_; }
  // There are no more than so many; nothing is made before it is needed.
  void Allow(std::size_t most) { most_ = most; }
  std::size_t num_spare() const { return spare_.size() + (most_ > made_ ? most_ - made_ : 0); }
  // Only when there is one. Throws kResourceExhausted.
  Lent Take();
  // Made where it is needed first: where all copies reach their other side, none is.
  std::byte* PinnedOf(Slot& slot);

 private:
  ChannelDevice& device_;
  const std::size_t slot_bytes_;
  std::size_t most_ = 0;
  std::size_t made_ = 0;
  std::vector<std::unique_ptr<Slot>> spare_;
};

}  // namespace layercast::nccl_channel
