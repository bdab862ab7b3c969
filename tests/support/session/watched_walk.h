// A source of a stream that says how far it has got. Header-only.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "layercast/weights_iterator.h"

namespace layercast::testing {

// Calls `before_each` with the number of tensors that it has yielded.
class WatchedWalk final : public WeightsIterator {
 public:
  WatchedWalk(std::unique_ptr<WeightsIterator> weights, std::function<void(std::size_t)> before_each)
      : weights_(std::move(weights)), before_each_(std::move(before_each)) {}
  std::optional<NamedTensor> Next() override {
    before_each_(yielded_++);
    return weights_->Next();
  }

 private:
  const std::unique_ptr<WeightsIterator> weights_;
  const std::function<void(std::size_t)> before_each_;
  std::size_t yielded_ = 0;
};

}  // namespace layercast::testing
