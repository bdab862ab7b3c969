// Holds a walk against the specs, and the parts, that were declared for it: each tensor once, none left out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "layercast/publisher.h"

namespace layercast {

// A part of each spec is declared, or none at all. Throws kInvalidArgument.
void CheckOnePartEach(const Weights& weights);

// Where nothing is declared, everything may come. Resource; one thread only. The weights outlive it.
class DeclaredWeights {
 public:
  explicit DeclaredWeights(const Weights& weights) : specs_(weights.specs), parts_(weights.parts) {}

  // Both throw kInvalidArgument, naming what is wrong.
  void Check(const NamedTensor& named);
  void CheckEnd();

 private:
  const TensorSpec& Take(const std::string& name);
  void AwaitRest();

  const std::vector<TensorSpec>& specs_;
  const std::vector<std::optional<TensorPart>>& parts_;  // of each spec, or empty: learnt from the walk
  std::size_t in_order_ = 0;                             // have come
  bool looks_up_ = false;
  std::unordered_map<std::string_view, const TensorSpec*> awaited_;  // once it looks up
};

}  // namespace layercast
