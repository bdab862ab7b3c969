#include "src/device/upload_ring.h"

#include "src/base/check.h"
#include "src/base/log.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

constexpr std::size_t kSlotAlignment = 256;  // no less than what a device reads in one go

}  // namespace

void UploadRing::Open() {
  if (!blocks_.empty()) return;
  device_ = Buffer(stream_.memory(), block_bytes_);
  for (std::size_t i = 0; i < kBlocks; ++i) blocks_.push_back({Buffer(stream_.pinned(), block_bytes_)});
}

UploadRing::Slot UploadRing::Take(std::size_t bytes) {
  LAYERCAST_CHECK(bytes <= block_bytes_);
  Open();
  if (used_ + bytes > block_bytes_) {
    blocks_[current_].read = stream_.Record();
    current_ = (current_ + 1) % kBlocks;
    stream_.Wait(blocks_[current_].read);
    used_ = 0;
  }
  const Slot slot{blocks_[current_].memory.data() + used_, device_.data() + used_};
  used_ = RoundUp(used_ + bytes, kSlotAlignment);
  return slot;
}

UploadRing::~UploadRing() {
  try {
    if (!blocks_.empty()) stream_.Wait(stream_.Record());
  } catch (const std::exception& error) {
    log::error("waiting for the last upload: {}", error.what());
  }
}

}  // namespace layercast
