#include "src/device/download.h"

#include <algorithm>
#include <utility>

#include "src/base/log.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

constexpr std::size_t kPartAlignment = 16;  // whole elements of any type

}  // namespace

void Download::Open() {
  for (Block& block : blocks_) {
    if (!block.pinned) block.pinned = Buffer(stream_.pinned(), block_bytes_);
  }
}

// Goes on to the other block. The copies into the current block are on their way. What is in the other block is
// visited, and its room is free then.
void Download::Turn() {
  blocks_[current_].arrived = stream_.Record();
  current_ = (current_ + 1) % blocks_.size();
  Block& block = blocks_[current_];
  if (block.parts.empty()) return;
  stream_.Wait(block.arrived);
  const std::vector<Part> parts = std::exchange(block.parts, {});
  block.used = 0;
  for (const Part& part : parts) part.visit(block.pinned.span().subspan(part.offset, part.bytes));
}

// Returns the current block, which has room for at least so many bytes.
Download::Block& Download::WithRoom(std::size_t bytes) {
  if (blocks_[current_].used + bytes > block_bytes_) Turn();
  Block& block = blocks_[current_];
  if (!block.pinned) block.pinned = Buffer(stream_.pinned(), block_bytes_);
  return block;
}

void Download::Append(Block& block, std::size_t bytes, const Visit& visit) {
  block.parts.push_back({block.used, bytes, visit});
  block.used = RoundUp(block.used + bytes, kPartAlignment);
}

void Download::Read(const std::byte* from, std::size_t bytes, const Visit& visit) {
  std::size_t done = 0;
  do {
    Block& block = WithRoom(1);
    const std::size_t count = std::min(block_bytes_ - block.used, bytes - done);
    if (count != 0) stream_.Copy(from + done, block.pinned.data() + block.used, count);
    Append(block, count, visit);
    done += count;
  } while (done < bytes);
}

void Download::Read(const GatheredBytes& from, const Visit& visit) {
  std::size_t done = 0;
  do {
    Block& block = WithRoom(from.unit);
    if (!block.packed) block.packed = Buffer(stream_.memory(), block_bytes_);
    const std::size_t room = block_bytes_ - block.used;
    const std::size_t count = std::min(room - room % from.unit, from.bytes - done);
    if (count != 0) {
      from.gather(done, count, block.packed.data() + block.used);
      stream_.Copy(block.packed.data() + block.used, block.pinned.data() + block.used, count);
    }
    Append(block, count, visit);
    done += count;
  } while (done < from.bytes);
}

void Download::Finish() {
  for (std::size_t i = 0; i < blocks_.size(); ++i) Turn();
}

void Download::Drop() {
  for (Block& block : blocks_) {
    block.parts.clear();
    block.used = 0;
  }
}

// Waits, because copies on their way write into the pinned memory.
Download::~Download() {
  if (!blocks_[0].pinned && !blocks_[1].pinned) return;
  try {
    stream_.Wait(stream_.Record());
  } catch (const std::exception& error) {
    log::error("waiting for the last download: {}", error.what());
  }
}

}  // namespace layercast
