#include "trainer_side/declared_weights.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <utility>

#include "layercast/error.h"
#include "src/tensor/tensor_part.h"

namespace layercast {
namespace {

// Parts of one tensor lie beside each other in by_name().
void CheckPartsAreApart(const ManifestLayout& layout) {
  const auto meet = [](const LaidOutTensor& a, const LaidOutTensor& b) {
    for (std::size_t d = 0; d < a.spec.shape.size(); ++d) {
      const std::int64_t begin = std::max(a.part->offsets[d], b.part->offsets[d]);
      if (begin >= std::min(a.part->offsets[d] + a.spec.shape[d], b.part->offsets[d] + b.spec.shape[d])) return false;
    }
    return true;
  };
  const std::span<const std::uint32_t> by_name = layout.by_name();
  for (std::size_t i = 0; i < by_name.size(); ++i) {
    const LaidOutTensor& a = layout.tensors()[by_name[i]];
    for (std::size_t k = i + 1; k < by_name.size(); ++k) {
      const LaidOutTensor& b = layout.tensors()[by_name[k]];
      if (b.spec.name != a.spec.name) break;
      if (!meet(a, b)) continue;
      throw Error(ErrorCode::kInvalidArgument, "'" + a.spec.name + "': " + Describe(a.spec.shape, *a.part) + " and " +
                                                   Describe(b.spec.shape, *b.part) +
                                                   " are both published: expected every element once");
    }
  }
}

}  // namespace

void CheckOnePartEach(const Weights& weights) {
  if (weights.parts.empty() || weights.parts.size() == weights.specs.size()) return;
  throw Error(ErrorCode::kInvalidArgument, "weights of " + std::to_string(weights.specs.size()) + " specs and " +
                                               std::to_string(weights.parts.size()) +
                                               " parts: expected a part of each, or none");
}

std::shared_ptr<const ManifestLayout> LayOut(std::vector<LaidOutTensor> tensors, bool shared,
                                             std::shared_ptr<const ManifestLayout> known) {
  auto layout = ManifestLayout::Of(std::move(tensors), shared, known);
  if (layout != known) CheckPartsAreApart(*layout);
  return layout;
}

void DeclaredWeights::Check(const NamedTensor& named) {
  if (specs_.empty()) return;
  const std::size_t number = Take(named);
  const TensorSpec& declared = specs_[number];
  if (declared.dtype != named.tensor.dtype || declared.shape != named.tensor.shape) {
    throw Error(ErrorCode::kInvalidArgument, "'" + named.name + "': declared " + Describe(declared) + ", yielded " +
                                                 Describe(named.tensor.dtype, named.tensor.shape));
  }
  if (parts_.empty()) return;
  CheckYielded(declared, parts_[number], named.part);
}

void DeclaredWeights::CheckEnd() {
  if (in_order_ == specs_.size()) return;
  AwaitRest();
  if (awaited_.empty()) return;
  const auto missing =
      std::ranges::find_if(specs_, [&](const TensorSpec& spec) { return awaited_.contains(spec.name); });
  const std::string first = "the walk ended without '" + missing->name + "'";
  const std::size_t others = awaited_.size() - 1;
  throw Error(
      ErrorCode::kInvalidArgument,
      first + (others == 0 ? ", which was declared" : " and " + std::to_string(others) + " more declared tensors"));
}

// Walks mostly yield in the declared order. Names are looked up only from the first tensor on that does not.
std::size_t DeclaredWeights::Take(const NamedTensor& named) {
  if (!looks_up_ && in_order_ < specs_.size() && IsPartOf(in_order_, named)) return in_order_++;
  AwaitRest();
  const auto [begin, end] = awaited_.equal_range(named.name);
  const auto same = std::find_if(begin, end, [&](const auto& awaited) { return IsPartOf(awaited.second, named); });
  // One part, and another than was declared, is named by what is compared next.
  const auto found = same == end && begin != end && std::next(begin) == end ? begin : same;
  if (found == end) {
    throw Error(ErrorCode::kInvalidArgument,
                DescribePart(named) + " was yielded without being declared, or yielded twice");
  }
  return awaited_.extract(found).mapped();
}

bool DeclaredWeights::IsPartOf(std::size_t spec, const NamedTensor& named) const {
  if (specs_[spec].name != named.name) return false;
  return parts_.empty() || !parts_[spec] || !named.part || parts_[spec]->offsets == named.part->offsets;
}

void DeclaredWeights::AwaitRest() {
  if (looks_up_) return;
  looks_up_ = true;
  for (std::size_t i = in_order_; i < specs_.size(); ++i) awaited_.emplace(specs_[i].name, i);
}

}  // namespace layercast
