#include "tests/support/reload/sharded_trainer.h"

#include <algorithm>
#include <cstring>

namespace layercast::testing {

std::vector<Box> RowsOf(const TensorSpec& spec, int rank, int ranks) {
  const std::int64_t chunk = (spec.shape[0] + ranks - 1) / ranks;
  const std::int64_t first = std::min(chunk * rank, spec.shape[0]);
  return {Box::Slice(spec.shape, 0, first, std::min(chunk, spec.shape[0] - first))};
}

std::vector<Box> ColumnsAndRows(const TensorSpec& spec, int rank, int ranks) {
  const bool reads = spec.name.find("o_proj") != std::string::npos || spec.name.find("down_proj") != std::string::npos;
  if (spec.shape.size() == 1 && spec.name.find("bias") == std::string::npos) {
    return rank == 0 ? std::vector{Box::Whole(spec.shape)} : std::vector<Box>();
  }
  const std::size_t axis = reads ? spec.shape.size() - 1 : 0;
  const std::int64_t size = spec.shape[axis];
  return {Box::Slice(spec.shape, axis, size * rank / ranks, size * (rank + 1) / ranks - size * rank / ranks)};
}

std::vector<Box> WholeByTurns(const TensorSpec& spec, int rank, int ranks) {
  const bool mine =
      std::hash<std::string>()(spec.name) % static_cast<std::size_t>(ranks) == static_cast<std::size_t>(rank);
  return mine ? std::vector{Box::Whole(spec.shape)} : std::vector<Box>();
}

std::vector<Box> RunsOfRows(const TensorSpec& spec, int rank, int ranks) {
  std::vector<Box> runs;
  const int all = 3 * ranks;
  for (int run = rank; run < all; run += ranks) {
    for (const Box& box : RowsOf(spec, run, all)) {
      if (box.num_elements() != 0 || run == rank) runs.push_back(box);
    }
  }
  return runs;
}

std::vector<Box> Quarters(const TensorSpec& spec, int rank, int /*ranks*/) {
  if (spec.shape.size() < 2) return WholeByTurns(spec, rank, 4);
  Box box = Box::Whole(spec.shape);
  const std::size_t last = spec.shape.size() - 1;
  for (const auto& [axis, half] : {std::pair(last - 1, rank / 2), std::pair(last, rank % 2)}) {
    const std::int64_t cut = spec.shape[axis] * 3 / 7;
    box.begin[axis] = half == 0 ? 0 : cut;
    box.extent[axis] = half == 0 ? cut : spec.shape[axis] - cut;
  }
  return {box};
}

const std::vector<ShardCase>& ShardCases() {
  static const std::vector<ShardCase> cases = {
      {"Rows2", RowsOf, 2},        {"Rows3", RowsOf, 3},     {"ColumnsAndRows2", ColumnsAndRows, 2},
      {"Whole2", WholeByTurns, 2}, {"Runs2", RunsOfRows, 2}, {"Quarters", Quarters, 4}};
  return cases;
}

namespace {

// Element by element: slow, obvious.
std::vector<std::byte> Slice(const Weights& weights, std::size_t tensor, const Box& box) {
  const TensorSpec& spec = weights.spec(tensor);
  const auto size = static_cast<std::size_t>(BitsPerElement(spec.dtype) / 8);
  const std::byte* from = weights.bytes(tensor).data();
  std::vector<std::byte> bytes(static_cast<std::size_t>(box.num_elements()) * size);
  std::byte* to = bytes.data();
  for (std::int64_t element = 0, end = spec.num_elements(); element < end; ++element, from += size) {
    bool inside = true;
    std::int64_t rest = element;
    for (std::size_t d = spec.shape.size(); d-- > 0; rest /= spec.shape[d]) {
      const std::int64_t index = rest % spec.shape[d];
      inside = inside && index >= box.begin[d] && index < box.begin[d] + box.extent[d];
    }
    if (!inside) continue;
    std::memcpy(to, from, size);
    to += size;
  }
  return bytes;
}

}  // namespace

layercast::Weights ShardOf(const Weights& weights, const ShardLayout& layout, int rank, int ranks) {
  std::vector<NamedTensor> tensors;
  std::vector<TensorSpec> specs;
  std::vector<std::optional<TensorPart>> parts;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const TensorSpec& spec = weights.spec(i);
    for (const Box& box : layout(spec, rank, ranks)) {
      auto bytes = std::make_shared<const std::vector<std::byte>>(Slice(weights, i, box));
      const Shape shape(box.extent.begin(), box.extent.begin() + box.rank);
      tensors.push_back(
          {.name = spec.name,
           .tensor = {.dtype = spec.dtype, .shape = shape, .data = bytes->data(), .device = {}},
           .owner = bytes,
           .part = TensorPart{.whole = spec.shape, .offsets = {box.begin.begin(), box.begin.begin() + box.rank}}});
      specs.push_back({spec.name, spec.dtype, shape});
      parts.push_back(tensors.back().part);
    }
  }
  return layercast::Weights::Once(std::move(specs), MakeWeightsIterator(std::move(tensors)), std::move(parts));
}

ShardedTrainer::ShardedTrainer(int ranks, const PublisherOptions& options) {
  for (int rank = 0; rank < ranks; ++rank) publishers_.push_back(std::make_unique<Publisher>(options));
}

void ShardedTrainer::Publish(const Weights& weights, const ShardLayout& layout, PublishMode mode,
                             const std::function<layercast::Weights(int rank, layercast::Weights)>& of_rank) {
  ++step_;
  const int ranks = static_cast<int>(publishers_.size());
  for (int rank = 0; rank < ranks; ++rank) {
    layercast::Weights shard = ShardOf(weights, layout, rank, ranks);
    if (of_rank) shard = of_rank(rank, std::move(shard));
    publishers_[static_cast<std::size_t>(rank)]->Publish(
        {.lineage = "run", .step = step_, .mode = mode, .part = {rank, ranks}, .run = run_of_rank(rank)},
        std::move(shard));
  }
}

std::vector<std::string> ShardedTrainer::endpoints() const {
  std::vector<std::string> endpoints;
  for (auto publisher = publishers_.rbegin(); publisher != publishers_.rend(); ++publisher) {
    endpoints.push_back((*publisher)->endpoint());
  }
  return endpoints;
}

}  // namespace layercast::testing
