// Moves adapters between slots and host copies, on all ranks of an engine. Used by loads, which need slots, and by
// promotions.
#pragma once

#include <string>

#include "engine_side/server/adapters/adapter_registry.h"
#include "engine_side/server/group/rank_group.h"
#include "src/base/deadline.h"

namespace layercast {

// Resource; thread-safe. Ranks copy beside their forward passes.
class AdapterMover {
 public:
  AdapterMover(RankGroup& ranks, AdapterRegistry& registry) : ranks_(ranks), registry_(registry) {}

  // A slot to fill for `name`, from which the adapter that had it has moved to a host copy. Throws what MakeRoom does,
  // and, naming the adapter, the error of a rank that could not copy: then every adapter is where it was.
  AdapterFill TakeSlot(const std::string& name, AdapterRegistry::For purpose, Deadline deadline);
  // Brings an adapter into a slot, unless it is in one, and holds it there. Throws kNotFound, and what TakeSlot throws.
  AdapterLease Promote(const std::string& name, Deadline deadline);

 private:
  void Copy(const AdapterMove& move);

  RankGroup& ranks_;
  AdapterRegistry& registry_;
};

}  // namespace layercast
