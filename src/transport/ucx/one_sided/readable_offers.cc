#include "src/transport/ucx/one_sided/readable_offers.h"

#include "layercast/error.h"

namespace layercast::ucx_channel {

RemotePlace ReadableOffers::PlaceOf(const Offered& offered, std::uint32_t tensor) {
  const OfferedTensor& memory = offered.tensors.at(tensor);
  const RegisteredMemory* found = Find(offered, tensor);
  if (found == nullptr) {
    std::unique_ptr<RegisteredMemory> registered;
    try {
      registered = memory_->Register({memory.data, memory.bytes});  // not under the mutex: it takes long
    } catch (const Error&) {
      usable_ = false;
      throw;
    }
    const std::lock_guard lock(mutex_);
    found = registered_[&offered].emplace(tensor, std::move(registered)).first->second.get();
  }
  return {reinterpret_cast<std::uintptr_t>(memory.data), found->key()};
}

const RegisteredMemory* ReadableOffers::Find(const Offered& offered, std::uint32_t tensor) const {
  const std::lock_guard lock(mutex_);
  const auto tensors = registered_.find(&offered);
  if (tensors == registered_.end()) return nullptr;
  const auto found = tensors->second.find(tensor);
  return found == tensors->second.end() ? nullptr : found->second.get();
}

void ReadableOffers::Forget(const Offered& offered) {
  Tensors gone;  // unpinned after the mutex is released
  const std::lock_guard lock(mutex_);
  if (const auto found = registered_.find(&offered); found != registered_.end()) {
    gone = std::move(found->second);
    registered_.erase(found);
  }
}

}  // namespace layercast::ucx_channel
