// The adapter slots of a rank: their memory, and the loads that fill them. The parent decides which slot holds what
// (server/adapters); a rank knows slots by their numbers. Used by the rank's process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "engine_side/adapters/adapter_slots.h"
#include "engine_side/reload/receive/attempt_stop.h"
#include "engine_side/server/group/engine_options.h"
#include "engine_side/server/rank/lent_buffers.h"
#include "engine_side/server/rank/weights_lender.h"
#include "layercast/adapters/adapter_receiver.h"
#include "layercast/memory.h"
#include "layercast/model/module.h"
#include "src/control/json_forms.h"

namespace layercast {

// Resource. Calls that fill or compare are for one thread at a time; Cancel may come at any time.
class RankAdapters {
 public:
  using BuildModel = std::function<std::unique_ptr<Module>()>;

  // What `options` says of adapters. `memory` is that of the rank's weights; if it outlives the process, so do the
  // slots. Both it and what `build` uses must outlive this.
  RankAdapters(const EngineOptions& options, const ParallelConfig& parallel, const BuildModel& build,
               MemoryResource& memory, const ReceiverOptions& receiver);

  const AdapterSlots& slots() const { return slots_; }
  // See AdapterReceiver.
  void SetServed(const CapturedBuffers& served) { receiver_->SetServed(served); }

  // Fills a slot that no sequence uses. Params: {"slot", "load", "weights_path" | "publisher" | "lent", "lineage",
  // "step", "adapter", "timeout_ms", "channel"}. Returns what the load found (docs/adapters.md).
  Json Fill(const Json& params);
  // Offers what these slots hold now, until they are filled again. Returns {"slot", "terms", "lent_digest"} of each,
  // which a twin's Fill needs to take it.
  Json Lend(const Json& slots, WeightsLender& lender, const LenderOptions& options);
  // Loads {"weights_path"} cold beside a slot, {"slot"}, and compares every byte of it, its ranks and scales. Returns
  // {"tensors", "bytes", "mismatches"}, as `compare` of a rank's weights does.
  Json Compare(const Json& params);
  // Gives up the load of that number, and those before it.
  void Cancel(std::uint64_t load);

 private:
  RankAdapters(std::unique_ptr<Module> model, const EngineOptions& options, const ParallelConfig& parallel,
               const BuildModel& build, MemoryResource& memory, const ReceiverOptions& receiver);
  std::unique_ptr<AdapterReceiver> ReceiverInto(const AdapterSlots& slots, std::unique_ptr<Module> model) const;
  Json Take(std::size_t slot, const Json& lent, std::uint64_t load);

  const EngineOptions& options_;
  const ParallelConfig parallel_;
  const BuildModel build_;
  HostMemory host_;
  ReceiverOptions receiver_options_;
  AdapterSlots slots_;
  std::unique_ptr<AdapterReceiver> receiver_;
  std::deque<LentBuffers> lent_;  // by slot
  AttemptStop taking_;            // of what another engine lends
};

}  // namespace layercast
