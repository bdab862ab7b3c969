#include "layercast/weights_iterator.h"

namespace layercast {
namespace {

class Generated final : public WeightsIterator {
 public:
  explicit Generated(std::function<std::optional<NamedTensor>()> next) : next_(std::move(next)) {}

  std::optional<NamedTensor> Next() override {
    if (!next_) return std::nullopt;
    std::optional<NamedTensor> tensor = next_();
    if (!tensor) next_ = nullptr;
    return tensor;
  }

 private:
  std::function<std::optional<NamedTensor>()> next_;  // empty once it has returned nullopt
};

}  // namespace

std::unique_ptr<WeightsIterator> MakeWeightsIterator(std::function<std::optional<NamedTensor>()> next) {
  return std::make_unique<Generated>(std::move(next));
}

std::unique_ptr<WeightsIterator> MakeWeightsIterator(std::vector<NamedTensor> tensors) {
  return MakeWeightsIterator([tensors = std::move(tensors), index = std::size_t{0}]() mutable {
    return index < tensors.size() ? std::optional(std::move(tensors[index++])) : std::nullopt;
  });
}

}  // namespace layercast
