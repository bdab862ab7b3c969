// Brings adapters into slots for sequences that wait for them, one after the other, beside the engine's steps. Used by
// the generator.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>

#include "engine_side/server/adapters/adapter_mover.h"
#include "engine_side/server/adapters/adapter_registry.h"
#include "layercast/error.h"

namespace layercast {

// What sequences of one adapter wait for together, who own it: when the last of them is gone, it is given up. Resource;
// thread-safe.
class AwaitedSlot {
 public:
  AwaitedSlot() = default;
  ~AwaitedSlot() { given_up_.request_stop(); }
  AwaitedSlot(const AwaitedSlot&) = delete;
  AwaitedSlot& operator=(const AwaitedSlot&) = delete;

  // Whether the adapter is in a slot. There it stays for as long as this lives. Throws why it could not get there.
  bool Ready() const;

 private:
  friend class AdapterPromotions;

  std::stop_source given_up_;
  mutable std::mutex mutex_;
  AdapterLease lease_;          // guarded by mutex_
  std::optional<Error> error_;  // likewise
};

// Resource; thread-safe. Its thread is "lc-promote".
class AdapterPromotions {
 public:
  // `settled` is called on that thread, under no lock, whenever a wait is over. All must outlive this.
  AdapterPromotions(RankGroup& ranks, AdapterRegistry& registry, std::function<void()> settled);
  // Those who wait must have let go of it before.
  ~AdapterPromotions();
  AdapterPromotions(const AdapterPromotions&) = delete;
  AdapterPromotions& operator=(const AdapterPromotions&) = delete;

  // Has the adapter brought into a slot, after those that were asked for before. Who asks for one that others wait for
  // waits with them.
  std::shared_ptr<AwaitedSlot> Ask(const std::string& name);

 private:
  struct Asked {
    std::string name;
    std::weak_ptr<AwaitedSlot> slot;
    std::stop_token given_up;
  };
  void Run(const std::stop_token& stop);
  void Promote(const Asked& asked);

  AdapterRegistry& registry_;
  AdapterMover mover_;
  const std::function<void()> settled_;
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Asked> asked_;  // guarded by mutex_; the first is under way
  std::jthread thread_;
};

}  // namespace layercast
