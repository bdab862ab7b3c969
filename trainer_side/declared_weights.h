// Checks a walk against the specs, and the parts, that were declared for it: each tensor must come exactly once. Used
// by snapshots.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "layercast/publisher.h"

namespace layercast {

// Throws kInvalidArgument unless there is a part for each spec, or none at all.
void CheckOnePartEach(const Weights& weights);

// Without declared specs, everything may come. Resource; one thread only. The weights outlive it.
class DeclaredWeights {
 public:
  explicit DeclaredWeights(const Weights& weights) : specs_(weights.specs), parts_(weights.parts) {}

  // Both functions throw kInvalidArgument, naming what is wrong.
  void Check(const NamedTensor& named);
  void CheckEnd();

 private:
  const TensorSpec& Take(const std::string& name);
  void AwaitRest();

  const std::vector<TensorSpec>& specs_;
  const std::vector<std::optional<TensorPart>>& parts_;  // of each spec; empty: they are learnt from the walk
  std::size_t in_order_ = 0;                             // how many have come in the declared order
  bool looks_up_ = false;
  std::unordered_map<std::string_view, const TensorSpec*> awaited_;  // filled once names have to be looked up
};

}  // namespace layercast
