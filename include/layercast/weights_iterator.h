// `weights_iterator`: a stream of `(name, tensor)` that is walked once, lazily or eagerly.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "layercast/export.h"
#include "layercast/tensor.h"

namespace layercast {

// Resource; one thread only. `Next` may block and may throw; after nullopt it stays at the end.
class LAYERCAST_PUBLIC WeightsIterator {
 public:
  virtual ~WeightsIterator() = default;
  virtual std::optional<NamedTensor> Next() = 0;
};

// Lazy: asks `next` each time (a generator); eager: walks a list that is already there.
LAYERCAST_PUBLIC std::unique_ptr<WeightsIterator> MakeWeightsIterator(std::function<std::optional<NamedTensor>()> next);
LAYERCAST_PUBLIC std::unique_ptr<WeightsIterator> MakeWeightsIterator(std::vector<NamedTensor> tensors);

}  // namespace layercast
