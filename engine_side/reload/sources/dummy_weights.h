// `--load-format dummy`: seeded random weights for an engine that starts empty and is synced later. They are this
// rank's parameters, under their own names, and need no checkpoint. Used by FromDummy.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "layercast/memory.h"
#include "layercast/weights_iterator.h"

namespace layercast {

// Values are uniform in (-kDummyMagnitude, kDummyMagnitude), rounded to the parameter's dtype, and positive in
// parameters that are scales. They are zero in parameters whose dtype fp32 cannot be cast to, and in padding.
inline constexpr float kDummyMagnitude = 1e-3F;

// Resource; one thread only. Yields every parameter of `plan`, in its order. A tensor is valid until the next one is
// asked for. The same seed, name and shape give the same values on every rank, except in parameters that are sharded
// over tensor-parallel ranks.
class DummyWeights final : public WeightsIterator {
 public:
  DummyWeights(const LoadPlan& plan, int tp_rank, std::uint64_t seed) : plan_(plan), tp_rank_(tp_rank), seed_(seed) {}

  std::optional<NamedTensor> Next() override;

 private:
  void Fill(const PlannedParameter& parameter);

  const LoadPlan& plan_;
  const int tp_rank_;
  const std::uint64_t seed_;
  std::size_t next_ = 0;
  HostMemory memory_;
  Buffer values_;  // of the parameter that Next returned last
};

}  // namespace layercast
