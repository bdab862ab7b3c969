// Loads adapters into slots on all ranks of an engine: fills a slot that has no name everywhere, and then names it.
// Used by the engine's service.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine_side/server/adapters/adapter_mover.h"
#include "engine_side/server/adapters/adapter_registry.h"
#include "engine_side/server/group/rank_group.h"
#include "src/base/deadline.h"
#include "src/base/failpoint.h"
#include "src/control/json_forms.h"

namespace layercast {

// An adapter that all ranks hold, in a slot without a name, which is free again unless it gets one. Resource;
// move-only.
struct FilledAdapter {
  AdapterFill slot;
  SlottedAdapter adapter;
  bool pin = false;
  Json report{};  // of all ranks, merged
};

// Resource; one thread only.
class AdapterLoads {
 public:
  AdapterLoads(RankGroup& ranks, AdapterRegistry& registry)
      : ranks_(ranks),
        registry_(registry),
        mover_(ranks, registry),
        failpoints_(registry.size() > 0 ? FailPoints::FromEnvironment("engine") : FailPoints()) {}

  // Waits for a slot, and has all ranks fill it. `params` are those of the call `load_adapter` (RPC.md), and `base` the
  // version that is served. If one rank fails, the others give up, and the slot is free again. Throws the error of the
  // rank that failed first, kFailedPrecondition if the adapter says that it was trained on another base, and what
  // TakeSlot throws.
  FilledAdapter Fill(const Json& params, const std::optional<Version>& base, Deadline deadline);
  // Fills slots with adapters beside a base that is staged: those of its version, or those that the engine serves which
  // lends it ("lent", as Borrow returns it). `params` are those of `reload_weights`, with "adapters", a list of names,
  // or "*" for all. All of them or none. Throws what Fill throws, kFailedPrecondition if the publisher has another
  // version of that name by now, and kNotFound if the other engine serves no adapter of that name.
  std::vector<FilledAdapter> FillAll(const Json& params, const Version& version, Deadline deadline);
  // Where a test lets the last step of a load fail.
  void CheckBeforeName() { failpoints_.Hit("adapter.flip"); }
  // From now on the name means what the slot holds. `with_base`: AdapterRegistry::Name.
  void Name(FilledAdapter filled, bool with_base = false);

 private:
  Json FillOnRanks(const Json& request, Deadline deadline);

  RankGroup& ranks_;
  AdapterRegistry& registry_;
  AdapterMover mover_;
  FailPoints failpoints_;
  std::uint64_t loads_ = 0;  // so far
};

}  // namespace layercast
