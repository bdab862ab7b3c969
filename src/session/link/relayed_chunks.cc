#include "src/session/link/relayed_chunks.h"

#include <algorithm>

namespace layercast {
namespace {

constexpr std::size_t kMostTold = 256;  // messages to one follower; its socket queues up to a thousand

}  // namespace

RelayedChunks::RelayedChunks(const Schedule& schedule, MemoryResource& memory)
    : KeptChunks(schedule, memory, "the chunks that this relay keeps"), written_(schedule.chunks().size()) {}

std::vector<OfferedTensor> RelayedChunks::Tensors() const {
  std::vector<OfferedTensor> tensors;
  for (std::uint32_t chunk = 0; chunk < written_.size(); ++chunk) {
    tensors.push_back({Place(chunk).data(), Place(chunk).size(), &written_[chunk]});
  }
  return tensors;
}

void RelayedChunks::Ready(std::uint32_t chunk) {
  written_[chunk].store(true, std::memory_order_release);
  const std::lock_guard lock(mutex_);
  const std::size_t chunks = written_.size();
  ready_ = std::max(ready_, chunk + 1);
  if (ready_ < chunks && ready_ - told_ <= chunks / kMostTold) return;
  told_ = ready_;
  for (const Follower& follower : followers_) Tell(follower);
}

void RelayedChunks::End(const Error& why) {
  const std::lock_guard lock(mutex_);
  ended_ = why;
  for (const Follower& follower : followers_) Tell(follower);
}

void RelayedChunks::Follow(const SessionKey& key, Outbox& outbox) {
  const std::lock_guard lock(mutex_);
  followers_.push_back({key, &outbox});
  Tell(followers_.back());
}

void RelayedChunks::Leave(const SessionKey& key) {
  const std::lock_guard lock(mutex_);
  std::erase_if(followers_, [&](const Follower& follower) { return follower.key == key; });
}

void RelayedChunks::Tell(const Follower& follower) const {
  if (ended_) {
    follower.outbox->Put(follower.key, wire::Refused{ended_->code(), ended_->what()});
  } else {
    follower.outbox->Put(follower.key, wire::ChunksReady{told_});
  }
}

}  // namespace layercast
