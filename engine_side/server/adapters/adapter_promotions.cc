#include "engine_side/server/adapters/adapter_promotions.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/base/deadline.h"
#include "src/base/log.h"
#include "src/base/threads/thread_name.h"

namespace layercast {

bool AwaitedSlot::Ready() const {
  const std::lock_guard lock(mutex_);
  if (error_) throw Error(*error_);
  return static_cast<bool>(lease_);
}

AdapterPromotions::AdapterPromotions(RankGroup& ranks, AdapterRegistry& registry, std::function<void()> settled)
    : registry_(registry), mover_(ranks, registry), settled_(std::move(settled)) {
  if (registry.host_adapters() > 0) thread_ = std::jthread([this](const std::stop_token& stop) { Run(stop); });
}

AdapterPromotions::~AdapterPromotions() {
  thread_.request_stop();
  changed_.notify_all();
}

std::shared_ptr<AwaitedSlot> AdapterPromotions::Ask(const std::string& name) {
  const std::lock_guard lock(mutex_);
  for (const Asked& asked : asked_) {
    if (asked.name != name) continue;
    if (std::shared_ptr<AwaitedSlot> slot = asked.slot.lock()) return slot;
  }
  auto slot = std::make_shared<AwaitedSlot>();  // owned by all who wait for it
  asked_.push_back({name, slot, slot->given_up_.get_token()});
  changed_.notify_all();
  return slot;
}

void AdapterPromotions::Run(const std::stop_token& stop) {
  NameThisThread("lc-promote");
  while (true) {
    Asked asked;
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [this] { return !asked_.empty(); })) return;
      asked = asked_.front();
    }
    if (!asked.given_up.stop_requested()) Promote(asked);
    {
      const std::lock_guard lock(mutex_);
      asked_.pop_front();
    }
    settled_();
  }
}

void AdapterPromotions::Promote(const Asked& asked) {
  AdapterLease lease;
  std::optional<Error> error;
  try {
    lease = mover_.Promote(asked.name, Deadline::After(std::chrono::milliseconds::max()).OrStop(asked.given_up));
  } catch (const std::exception& failure) {
    error = ErrorOfCall(failure);
    if (!asked.given_up.stop_requested()) log::warn("{}", error->what());
  }
  const std::shared_ptr<AwaitedSlot> slot = asked.slot.lock();
  if (slot == nullptr) return;
  const std::lock_guard lock(slot->mutex_);
  slot->lease_ = std::move(lease);
  slot->error_ = std::move(error);
}

}  // namespace layercast
