// The adapters of a rank: the memory of its slots and host copies, the loads that fill slots, and the copies between
// both. The parent decides which place holds what (server/adapters); a rank knows places by their numbers: first slots,
// then host copies. Used by the rank's process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>

#include "engine_side/adapters/adapter_slots.h"
#include "engine_side/adapters/load/slot_copier.h"
#include "engine_side/reload/receive/attempt_stop.h"
#include "engine_side/server/group/engine_options.h"
#include "engine_side/server/rank/lent_buffers.h"
#include "engine_side/server/rank/weights_lender.h"
#include "layercast/adapters/adapter_receiver.h"
#include "layercast/memory.h"
#include "layercast/model/module.h"
#include "src/base/failpoint.h"
#include "src/control/json_forms.h"

namespace layercast {

// Resource. Calls that fill or compare are for one thread at a time, and Move for another one: the parent sees to it
// that they are about different places. Cancel may come at any time.
class RankAdapters {
 public:
  using BuildModel = std::function<std::unique_ptr<Module>()>;

  // The memory of slots is that of the rank's weights: if it outlives the process, so do the slots. Host copies, which
  // are in host memory, outlive it always. Value.
  struct Memory {
    MemoryResource& slots;
    MemoryResource& host_copies;
  };
  // What `options` says of adapters. The memory, and what `build` uses, must outlive this.
  RankAdapters(const EngineOptions& options, const ParallelConfig& parallel, const BuildModel& build,
               const Memory& memory, const ReceiverOptions& receiver);

  const AdapterSlots& slots() const { return slots_; }
  // See AdapterReceiver.
  void SetServed(const CapturedBuffers& served) { receiver_->SetServed(served); }

  // Fills a slot that no sequence uses. Params: {"slot", "load", "weights_path" | "publisher" | "lent", "lineage",
  // "step", "adapter", "timeout_ms", "channel"}. Returns what the load found (docs/adapters.md).
  Json Fill(const Json& params);
  // Offers what these places hold now, until they are written again. Returns {"place", "terms", "lent_digest"} of each,
  // which a twin's Fill needs to take it.
  Json Lend(const Json& places, WeightsLender& lender, const LenderOptions& options);
  // Copies the adapter of a place that nobody writes to one that nobody reads, and compares what is there then with the
  // digest of the adapter's load. Params: {"from", "to", "digests": one for each rank}. Throws kCorrupt if it differs.
  Json Move(const Json& params);
  // Loads {"weights_path"} cold beside a place, {"slot"}, and compares every byte of it, its ranks and scales. Returns
  // {"tensors", "bytes", "mismatches"}, as `compare` of a rank's weights does.
  Json Compare(const Json& params);
  // Gives up the load of that number, and those before it.
  void Cancel(std::uint64_t load);

 private:
  RankAdapters(std::unique_ptr<Module> model, const EngineOptions& options, const ParallelConfig& parallel,
               const BuildModel& build, const Memory& memory, const ReceiverOptions& receiver);
  SlotCopier::Place At(std::size_t place);
  std::unique_ptr<AdapterReceiver> ReceiverInto(const AdapterSlots& slots, std::unique_ptr<Module> model,
                                                const ReceiverOptions& receiver) const;
  Json Take(std::size_t slot, const Json& lent, std::uint64_t load);

  const EngineOptions& options_;
  const ParallelConfig parallel_;
  const BuildModel build_;
  HostMemory host_;
  ReceiverOptions receiver_options_;
  AdapterSlots slots_;
  std::optional<AdapterSlots> host_copies_{};
  std::optional<SlotCopier> copier_{};  // with host copies
  FailPoints failpoints_;
  std::unique_ptr<AdapterReceiver> receiver_;
  std::deque<LentBuffers> lent_;  // by place
  AttemptStop taking_;            // of what another engine lends
};

}  // namespace layercast
