#include "src/session/offer/stream_blocks.h"

#include <algorithm>

#include "src/base/memory/buffer_for.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

constexpr std::size_t kLargestBlock = std::size_t{4} << 20;
constexpr std::size_t kSmallestBlock = std::size_t{64} << 10;
constexpr std::uint64_t kBlocksOfWindow = 8;
constexpr std::size_t kTensorsOfBlock = 8;  // at least; larger ones have blocks of their own

// Tensors begin where cache lines do.
std::size_t Room(std::size_t bytes) { return RoundUp(std::max<std::size_t>(bytes, 1), kMemoryAlignment); }

}  // namespace

std::size_t StreamBlocks::SharedBytes(std::size_t bytes, std::uint64_t most) const {
  const auto size = static_cast<std::size_t>(std::min<std::uint64_t>(most / kBlocksOfWindow, kLargestBlock));
  if (size < kSmallestBlock || bytes > size / kTensorsOfBlock) return 0;
  return std::ranges::any_of(context_.ends, &OfferingEnd::copies) ? 0 : size;
}

bool StreamBlocks::HasRoom(std::size_t bytes, std::uint64_t most) {
  if (waiting() == 0) return true;
  if (waiting() >= kMostWaiting) return false;
  const std::size_t shared = SharedBytes(bytes, most);
  if (shared != 0 && FindRoom(bytes) != nullptr) return true;
  const std::uint64_t wanted = std::max<std::size_t>({shared, bytes, 1});
  if (allocated_ + wanted <= most) return true;
  std::erase_if(blocks_, [this](const Block& block) {
    if (block.used != 0) return false;
    allocated_ -= block.memory.size();
    return true;
  });
  return allocated_ + wanted <= most;
}

StreamPlace StreamBlocks::Place(const std::string& name, std::size_t bytes, std::uint64_t most) {
  const std::size_t shared = SharedBytes(bytes, most);
  last_ = shared != 0 ? FindRoom(bytes) : nullptr;
  if (last_ == nullptr) {
    Block block;
    block.memory = BufferFor("'" + name + "' of the stream", context_.arena, std::max<std::size_t>({shared, bytes, 1}));
    block.reused = shared != 0;
    allocated_ += block.memory.size();
    last_ = &blocks_.emplace_back(std::move(block));
  }
  const StreamPlace place{.memory = last_->memory.span().subspan(last_->used, bytes), .offset = last_->used};
  last_->used += Room(bytes);
  last_->last = ++placed_;
  return place;
}

void StreamBlocks::Offer(StreamPlace& place, std::size_t bytes) {
  if (!last_->offer) {
    const std::size_t offered = last_->reused ? last_->memory.size() : bytes;
    last_->offer.emplace(layercast::Offer{.id = next_offer_id_++, .tensors = {{last_->memory.data(), offered}}},
                         context_.ends);
  }
  place.offer_id = last_->offer->id();
}

StreamBlocks::Block* StreamBlocks::FindRoom(std::size_t bytes) {
  const auto block = std::ranges::find_if(blocks_, [&](const Block& one) { return one.Fits(Room(bytes)); });
  return block == blocks_.end() ? nullptr : &*block;
}

void StreamBlocks::Retire(std::uint32_t tensors) {
  retired_ = std::max(retired_, std::min(tensors, placed_));  // a receiver may say anything
  std::erase_if(blocks_, [this](Block& block) {
    if (block.last > retired_) return false;
    block.used = 0;
    if (block.reused) return false;
    allocated_ -= block.memory.size();
    return true;
  });
}

void StreamBlocks::Seal() {
  for (Block& block : blocks_) block.reused = false;
  Retire(retired_);  // those that hold nothing go now
}

}  // namespace layercast
