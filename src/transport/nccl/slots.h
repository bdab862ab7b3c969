// Memory that pieces wait in. It is kept from one epoch to the next: giving device or pinned memory back waits for the
// whole device, transfers of other connections among it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "layercast/memory.h"
#include "src/transport/device/staging.h"

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

  explicit Slots(StagingDevice& device) : device_(device) {}

  // There are no more than so many; nothing is made before it is needed.
  void Allow(std::size_t most) { most_ = most; }
  std::size_t num_spare() const { return spare_.size() + (most_ > made_ ? most_ - made_ : 0); }
  // Only when there is one. Throws kResourceExhausted.
  Lent Take();
  // Made where it is needed first: where all copies reach their other side, none is.
  std::byte* PinnedOf(Slot& slot);

 private:
  StagingDevice& device_;
  std::size_t most_ = 0;
  std::size_t made_ = 0;
  std::vector<std::unique_ptr<Slot>> spare_;
};

}  // namespace layercast::nccl_channel
