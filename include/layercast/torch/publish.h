// For trainers that use libtorch: publish a torch::nn::Module, or any (name, at::Tensor) pairs.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "layercast/publisher.h"
#include "layercast/torch/tensors.h"
#include "layercast/weights_iterator.h"

namespace layercast {

// Publishes a list of tensors, which may be walked any number of times, in any order. A walk reads a tensor's values
// when it reaches it, so the tensors must not change while walks may go on: for a snapshot until Publish returns, for a
// stream until its PublishedVersion is released.
inline Weights TorchWeights(std::vector<NamedAtTensor> tensors, CudaTensors cuda = CudaTensors::kToHost) {
  Weights weights;
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    weights.specs.push_back(SpecOf(tensors[i].first, tensors[i].second));
    if (!places.emplace(tensors[i].first, i).second) {
      throw Error(ErrorCode::kInvalidArgument, "'" + tensors[i].first + "' is to be published twice: expected it once");
    }
  }
  weights.walk = [tensors = std::move(tensors), places = std::move(places), cuda](std::span<const std::string> order) {
    std::vector<NamedAtTensor> list = order.empty() ? tensors : std::vector<NamedAtTensor>{};
    for (const std::string& name : order) {
      const auto place = places.find(name);
      if (place == places.end()) throw Error(ErrorCode::kNotFound, "no tensor '" + name + "' to publish");
      list.push_back(tensors[place->second]);
    }
    return MakeWeightsIterator(
        [list = std::move(list), cuda, next = std::size_t{0}]() mutable -> std::optional<NamedTensor> {
          if (next == list.size()) return std::nullopt;
          const NamedAtTensor& tensor = list[next++];
          return NamedTensorOf(tensor.first, tensor.second, cuda);
        });
  };
  return weights;
}

// What one rank of a sharded trainer holds of a tensor: `local` is all of it, or the part that `part` describes. For a
// DTensor, `local` is `to_local()`, and `compute_local_shape_and_global_offset` gives `part`. Value.
struct TorchShard {
  std::string name;
  at::Tensor local;
  std::optional<TensorPart> part{};
};

// Publishes what one rank of a sharded trainer holds, with PublishOptions::part. If several ranks hold the same tensor,
// only one of them may publish it. May be walked any number of times.
inline Weights TorchShards(std::vector<TorchShard> shards, CudaTensors cuda = CudaTensors::kToHost) {
  Weights weights;
  for (const TorchShard& shard : shards) {
    weights.specs.push_back(SpecOf(shard.name, shard.local));
    weights.parts.push_back(shard.part);
  }
  weights.walk = [shards = std::move(shards), cuda](std::span<const std::string> /*order*/) {
    return MakeWeightsIterator([shards, cuda, next = std::size_t{0}]() mutable -> std::optional<NamedTensor> {
      if (next == shards.size()) return std::nullopt;
      const TorchShard& shard = shards[next++];
      NamedTensor tensor = NamedTensorOf(shard.name, shard.local, cuda);
      tensor.part = shard.part;
      return tensor;
    });
  };
  return weights;
}

// Publishes a torch::nn::Module's parameters. What they are computed with it cannot know: set Weights::config, so that
// engines of another configuration refuse them. (A template, so that this header need not include torch's larger ones.)
template <typename TorchModule>
  requires requires(const TorchModule& module) { module.named_parameters().begin()->key(); }
Weights TorchWeights(const TorchModule& module, CudaTensors cuda = CudaTensors::kToHost) {
  std::vector<NamedAtTensor> tensors;
  for (const auto& parameter : module.named_parameters()) tensors.emplace_back(parameter.key(), parameter.value());
  return TorchWeights(std::move(tensors), cuda);
}

// Publishes what a generator yields, such as a layer-by-layer gather. It can be walked only once. `specs` are those of
// the tensors that it will yield: a stream needs them, a snapshot learns them as it walks.
inline Weights TorchWeights(std::function<std::optional<NamedAtTensor>()> next, std::vector<TensorSpec> specs = {},
                            CudaTensors cuda = CudaTensors::kToHost) {
  return Weights::Once(std::move(specs),
                       MakeWeightsIterator([next = std::move(next), cuda]() -> std::optional<NamedTensor> {
                         const std::optional<NamedAtTensor> tensor = next();
                         if (!tensor) return std::nullopt;
                         return NamedTensorOf(tensor->first, tensor->second, cuda);
                       }));
}

}  // namespace layercast
