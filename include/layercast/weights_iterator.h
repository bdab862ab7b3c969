// `weights_iterator`: a stream of `(name, tensor)` that is walked once. Trainers publish from one, and receivers load
// from one.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "layercast/export.h"
#include "layercast/tensor.h"

namespace layercast {

// Resource; one thread only. `Next` may block and may throw. Once it has returned nullopt, it always does.
class LAYERCAST_PUBLIC WeightsIterator {
 public:
  virtual ~WeightsIterator() = default;
  virtual std::optional<NamedTensor> Next() = 0;
};

// An iterator that asks `next`, a generator, for each tensor; and one that walks a list.
LAYERCAST_PUBLIC std::unique_ptr<WeightsIterator> MakeWeightsIterator(std::function<std::optional<NamedTensor>()> next);
LAYERCAST_PUBLIC std::unique_ptr<WeightsIterator> MakeWeightsIterator(std::vector<NamedTensor> tensors);

}  // namespace layercast
