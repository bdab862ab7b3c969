#include "src/transport/cuda_ipc/mappings.h"

namespace layercast::cuda_ipc_channel {

void Mappings::Begin(const std::string& address) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_,
                [&](const auto& entry) { return entry.first.first != address && entry.second.use_count() == 1; });
}

Mapping Mappings::Get(const std::string& address, std::uint32_t number, const std::function<Mapping()>& map) {
  const std::lock_guard lock(mutex_);
  const auto found = kept_.find({address, number});
  if (found != kept_.end()) return found->second;
  return kept_.emplace(std::pair(address, number), map()).first->second;
}

void Mappings::Drop(const std::string& address, std::uint32_t number) {
  const std::lock_guard lock(mutex_);
  kept_.erase({address, number});
}

void Mappings::DropAll(const std::string& address) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [&](const auto& entry) { return entry.first.first == address; });
}

std::size_t Mappings::size() const {
  const std::lock_guard lock(mutex_);
  return kept_.size();
}

}  // namespace layercast::cuda_ipc_channel
