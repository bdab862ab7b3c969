// Weights: the sources that a version's tensors come from.
#include <atomic>
#include <utility>

#include "layercast/error.h"
#include "layercast/publisher.h"
#include "src/checkpoint/config_text.h"
#include "src/checkpoint/formats/checkpoint.h"

namespace layercast {

Weights Weights::FromCheckpoint(const std::string& path) { return FromCheckpoint(CheckpointSource{.path = path}); }

Weights Weights::FromCheckpoint(const CheckpointSource& source) {
  const Checkpoint checkpoint = Checkpoint::Open(source);
  Weights weights;
  weights.specs = checkpoint.specs();
  weights.config = ConfigTextToSend(checkpoint.config());
  weights.walk = [checkpoint](std::span<const std::string> order) {
    if (order.empty()) return checkpoint.Weights();
    std::vector<std::uint32_t> indices;
    for (const std::string& name : order) {
      const std::int64_t index = checkpoint.Find(name);
      if (index < 0) {
        throw Error(ErrorCode::kNotFound, "checkpoint " + checkpoint.source().path + " has no tensor '" + name + "'");
      }
      indices.push_back(static_cast<std::uint32_t>(index));
    }
    return checkpoint.Weights(std::move(indices));
  };
  return weights;
}

Weights Weights::Once(std::vector<TensorSpec> specs, std::unique_ptr<WeightsIterator> iterator,
                      std::vector<std::optional<TensorPart>> parts) {
  if (iterator == nullptr) throw Error(ErrorCode::kInvalidArgument, "weights without an iterator");
  Weights weights;
  weights.specs = std::move(specs);
  weights.parts = std::move(parts);
  // std::function needs a copyable callable, so its copies share the iterator, and the first walk takes it.
  auto once = std::make_shared<std::unique_ptr<WeightsIterator>>(std::move(iterator));
  weights.walk = [once](std::span<const std::string> order) {
    if (!order.empty()) {
      throw Error(ErrorCode::kFailedPrecondition, "these weights come in their own order: they are an iterator");
    }
    if (*once == nullptr) {
      throw Error(ErrorCode::kFailedPrecondition, "these weights can be walked only once, and have been");
    }
    return std::exchange(*once, nullptr);
  };
  return weights;
}

}  // namespace layercast
