#include "src/transport/nccl/wire/slots.h"

#include "src/base/check.h"

namespace layercast::nccl_channel {

Slots::Lent Slots::Take() {
  LAYERCAST_CHECK(num_spare() > 0);
  if (spare_.empty()) {
    auto slot = std::make_unique<Slot>();
    slot->device = Buffer(device_.device_memory(), slot_bytes_);
    spare_.push_back(std::move(slot));
    ++made_;
  }
  Lent slot(spare_.back().release(), Return{this});
  spare_.pop_back();
  return slot;
}

std::byte* Slots::PinnedOf(Slot& slot) {
  if (!slot.pinned) slot.pinned = Buffer(device_.pinned_memory(), slot_bytes_);
  return slot.pinned.data();
}

}  // namespace layercast::nccl_channel
