// Checks a walk against the specs, and the parts, that were declared for it: each tensor, and each part of one, must
// come exactly once. Used by snapshots; of streams, what is declared.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "layercast/publisher.h"
#include "src/tensor/manifest/manifest_layout.h"

namespace layercast {

// Throws kInvalidArgument unless there is a part for each spec, or none at all.
void CheckOnePartEach(const Weights& weights);

// As ManifestLayout::Of, and throws kInvalidArgument if two parts of one tensor have an element in common. A layout
// that is known was checked before.
std::shared_ptr<const ManifestLayout> LayOut(std::vector<LaidOutTensor> tensors, bool shared,
                                             std::shared_ptr<const ManifestLayout> known);

// Without declared specs, everything may come. Resource; one thread only. The weights outlive it.
class DeclaredWeights {
 public:
  explicit DeclaredWeights(const Weights& weights) : specs_(weights.specs), parts_(weights.parts) {}

  // Both functions throw kInvalidArgument, naming what is wrong.
  void Check(const NamedTensor& named);
  void CheckEnd();

 private:
  // The number of the spec that the tensor was declared by.
  std::size_t Take(const NamedTensor& named);
  bool IsPartOf(std::size_t spec, const NamedTensor& named) const;
  void AwaitRest();

  const std::vector<TensorSpec>& specs_;
  const std::vector<std::optional<TensorPart>>& parts_;  // of each spec; empty: they are learnt from the walk
  std::size_t in_order_ = 0;                             // how many have come in the declared order
  bool looks_up_ = false;
  // By name, of several parts of a tensor each: specs that have not come. Filled once names have to be looked up.
  std::unordered_multimap<std::string_view, std::size_t> awaited_;
};

}  // namespace layercast
