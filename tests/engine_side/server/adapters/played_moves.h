// Loads and promotions of a registry without an engine: moves between places succeed at once. Used by the tests of the
// registry.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>

#include "engine_side/server/adapters/adapter_registry.h"

namespace layercast::testing {

inline Deadline Now() { return Deadline::After(std::chrono::milliseconds(0)); }
inline Deadline Later() { return Deadline::After(std::chrono::seconds(20)); }

inline Version Step(std::uint64_t step) { return {"run", step, {1, step + 1}}; }

inline AdapterFill Take(AdapterRegistry& registry, const std::string& name, Deadline deadline,
                        AdapterRegistry::For purpose = AdapterRegistry::For::kLoad) {
  while (true) {
    AdapterRegistry::Room room = registry.MakeRoom(name, purpose, deadline);
    if (auto* const slot = std::get_if<AdapterFill>(&room)) return std::move(*slot);
    if (AdapterFill slot = registry.Demoted(std::move(std::get<AdapterMove>(room)), name, purpose)) return slot;
  }
}

inline std::size_t Load(AdapterRegistry& registry, const std::string& name, std::uint64_t step, bool pin = false) {
  AdapterFill slot = Take(registry, name, Now());
  const std::size_t place = slot.place();
  registry.Name(std::move(slot), {.name = name, .version = Step(step)}, pin);
  return place;
}

inline AdapterLease Promote(AdapterRegistry& registry, const std::string& name, Deadline deadline = Now()) {
  if (AdapterLease there = registry.InSlot(name)) return there;
  auto move = registry.MoveInto(Take(registry, name, deadline, AdapterRegistry::For::kPromotion), name);
  return move ? registry.Promoted(std::move(*move)) : registry.Lease(name);
}

}  // namespace layercast::testing
