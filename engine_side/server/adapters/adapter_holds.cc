#include "engine_side/server/adapters/adapter_holds.h"

#include "engine_side/server/adapters/adapter_registry.h"

namespace layercast {

AdapterLease& AdapterLease::operator=(AdapterLease&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  registry_ = std::exchange(other.registry_, nullptr);
  place_ = other.place_;
  name_ = std::move(other.name_);
  version_ = std::move(other.version_);
  return *this;
}

void AdapterLease::GiveBack() noexcept {
  if (registry_ != nullptr) std::exchange(registry_, nullptr)->Release(place_);
}

AdapterFill& AdapterFill::operator=(AdapterFill&& other) noexcept {
  if (this == &other) return *this;
  GiveBack();
  registry_ = std::exchange(other.registry_, nullptr);
  place_ = other.place_;
  return *this;
}

void AdapterFill::GiveBack() noexcept {
  if (registry_ != nullptr) std::exchange(registry_, nullptr)->GiveBack(place_);
}

AdapterMove::~AdapterMove() {
  if (registry_ != nullptr) registry_->GiveUp(from_);
}

}  // namespace layercast
