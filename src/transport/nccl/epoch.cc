#include "src/transport/nccl/epoch.h"

#include "src/base/check.h"

namespace layercast::nccl_channel {

std::unique_ptr<Slot> Epoch::TakeSpare() {
  LAYERCAST_CHECK(has_spare());
  if (spare_.empty()) {
    auto slot = std::make_unique<Slot>();
    slot->device = Buffer(device_.device_memory(), kPieceBytes);
    spare_.push_back(std::move(slot));
    ++made_;
  }
  std::unique_ptr<Slot> slot = std::move(spare_.back());
  spare_.pop_back();
  return slot;
}

std::byte* Epoch::PinnedOf(Slot& slot) {
  if (!slot.pinned) slot.pinned = Buffer(device_.pinned_memory(), kPieceBytes);
  return slot.pinned.data();
}

}  // namespace layercast::nccl_channel
