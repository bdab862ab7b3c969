#include "trainer_side/row_shard.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "src/base/rounding.h"

namespace layercast {
namespace {

struct Rows {
  std::int64_t first = 0;
  std::int64_t count = 0;
};

Rows RowsOf(std::int64_t rows, VersionPart part) {
  const std::int64_t chunk = CeilDivide(rows, static_cast<std::int64_t>(part.ranks));
  const std::int64_t first = std::min(chunk * part.rank, rows);
  return {first, std::min(chunk, rows - first)};
}

// Whether the rank has a part of such a tensor. An empty part counts.
bool Holds(const Shape& shape, VersionPart part) { return !shape.empty() || part.rank == 0; }

std::optional<TensorPart> PartOf(const Shape& shape, VersionPart part) {
  if (shape.empty()) return std::nullopt;
  TensorPart of{.whole = shape, .offsets = Shape(shape.size())};
  of.offsets[0] = RowsOf(shape[0], part).first;
  return of;
}

TensorSpec ShardOf(TensorSpec spec, VersionPart part) {
  if (!spec.shape.empty()) spec.shape[0] = RowsOf(spec.shape[0], part).count;
  return spec;
}

NamedTensor ShardOf(NamedTensor named, VersionPart part) {
  TensorView& tensor = named.tensor;
  named.part = PartOf(tensor.shape, part);
  if (!named.part) return named;
  const Rows rows = RowsOf(tensor.shape[0], part);
  tensor.shape[0] = rows.first;
  const std::int64_t skipped = tensor.num_bytes();  // bytes of the rows before this rank's
  tensor.shape[0] = rows.count;
  tensor.data += skipped;
  return named;
}

class RowWalk final : public WeightsIterator {
 public:
  RowWalk(std::unique_ptr<WeightsIterator> whole, VersionPart part) : whole_(std::move(whole)), part_(part) {}

  std::optional<NamedTensor> Next() override {
    while (std::optional<NamedTensor> named = whole_->Next()) {
      if (Holds(named->tensor.shape, part_)) return ShardOf(*std::move(named), part_);
    }
    return std::nullopt;
  }

 private:
  const std::unique_ptr<WeightsIterator> whole_;
  const VersionPart part_;
};

}  // namespace

Weights RowShard(Weights weights, VersionPart part) {
  if (part.ranks == 1) return weights;
  std::erase_if(weights.specs, [&](const TensorSpec& spec) { return !Holds(spec.shape, part); });
  for (TensorSpec& spec : weights.specs) {
    weights.parts.push_back(PartOf(spec.shape, part));
    spec = ShardOf(std::move(spec), part);
  }
  weights.walk = [walk = std::move(weights.walk), part](std::span<const std::string> order) {
    return std::make_unique<RowWalk>(walk(order), part);
  };
  return weights;
}

}  // namespace layercast
