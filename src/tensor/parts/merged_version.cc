#include "src/tensor/parts/merged_version.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

#include "layercast/error.h"
#include "src/base/bytes/bytes.h"
#include "src/base/check.h"
#include "src/base/digest/digest.h"
#include "src/base/utf8.h"
#include "src/tensor/parts/coverage.h"

namespace layercast {
namespace {

// A tensor, or the part of one, as one publisher lists it.
struct Held {
  std::uint32_t publisher = 0;
  std::uint32_t number = 0;
  const LaidOutTensor* tensor = nullptr;
  const TensorSummary* summary = nullptr;
  Box box;
};

const Shape& WholeShape(const LaidOutTensor& tensor) { return tensor.part ? tensor.part->whole : tensor.spec.shape; }

// A box has at most kMaxRank axes. If a tensor has more (a vision tower's convolution), the axes from this one on are
// treated as one.
constexpr std::size_t kJoined = Box::kMaxRank - 1;

Shape Joined(const Shape& shape) {
  if (shape.size() <= Box::kMaxRank) return shape;
  const auto first = shape.begin() + kJoined;
  Shape joined(shape.begin(), first);
  joined.push_back(std::accumulate(first, shape.end(), std::int64_t{1}, std::multiplies()));
  return joined;
}

// The first joined axis, beyond those that a box tells apart, along which the part is cut.
std::optional<std::size_t> FindCutBehind(const LaidOutTensor& tensor) {
  for (std::size_t axis = Box::kMaxRank; axis < tensor.spec.shape.size(); ++axis) {
    if (tensor.spec.shape[axis] != WholeShape(tensor)[axis]) return axis;
  }
  return std::nullopt;
}

// Where the tensor, or the part of one, lies in Joined(WholeShape).
Box BoxOf(const LaidOutTensor& tensor) {
  Box box = Box::Whole(Joined(tensor.spec.shape));
  if (!tensor.part) return box;
  const Shape& offsets = tensor.part->offsets;
  std::copy_n(offsets.begin(), box.rank, box.begin.begin());
  if (offsets.size() > Box::kMaxRank && offsets[kJoined] != 0) {
    box.begin[kJoined] *= Joined(tensor.part->whole)[kJoined] / tensor.part->whole[kJoined];
  }
  return box;
}

// The box for error messages: "[4:8, 0:32]".
std::string TextOf(const Box& box) {
  std::string text = "[";
  for (std::size_t d = 0; d < box.rank; ++d) {
    text += (d == 0 ? "" : ", ") + std::to_string(box.begin[d]) + ":" + std::to_string(box.begin[d] + box.extent[d]);
  }
  return text + "]";
}

// The first box that shares no element with any of `boxes`, as large as their borders allow. Slow: only for error
// messages.
std::optional<Box> FindHole(const Shape& shape, std::span<const Box> boxes) {
  std::vector<std::vector<std::int64_t>> cuts;  // for each dimension, where boxes begin or end
  for (std::size_t d = 0; d < shape.size(); ++d) {
    std::set<std::int64_t> borders = {0, shape[d]};
    for (const Box& box : boxes) borders.insert({box.begin[d], box.begin[d] + box.extent[d]});
    cuts.emplace_back(borders.begin(), borders.end());
  }
  std::vector<std::size_t> at(shape.size());
  while (true) {
    Box cell = Box::Whole(shape);
    for (std::size_t d = 0; d < shape.size(); ++d) {
      cell.begin[d] = cuts[d][at[d]];
      cell.extent[d] = cuts[d][at[d] + 1] - cell.begin[d];
    }
    if (std::ranges::none_of(boxes, [&](const Box& box) { return Overlap(box, cell); })) return cell;
    std::size_t d = shape.size();
    while (d > 0 && ++at[d - 1] + 1 == cuts[d - 1].size()) at[--d] = 0;
    if (d == 0) return std::nullopt;
  }
}

// Whether the boxes touch along a border.
bool Touch(const Box& a, Box b) {
  for (std::size_t d = 0; d < b.rank; ++d) {
    Box wider = b;
    wider.begin[d] -= 1;
    wider.extent[d] += 2;
    if (Overlap(a, wider)) return true;
  }
  return false;
}

class Merger {
 public:
  Merger(std::span<const Manifest> manifests, std::span<const std::string> endpoints)
      : manifests_(manifests), endpoints_(endpoints) {}

  MergedVersion Run() {
    CheckNoise();
    List();
    std::vector<ManifestEntry> entries;
    HeldParts parts;
    for (std::vector<Held>& held : tensors_) {
      Check(held);
      std::vector<HeldPart>& of_tensor = parts.emplace_back();
      for (const Held& one : held) of_tensor.push_back({one.number, one.box});
      entries.push_back(Whole(held, of_tensor));
    }
    const Version& version = manifests_.front().version();
    return {Manifest(version.lineage, version.step, std::move(entries)).With(manifests_.front().noise()),
            std::move(parts)};
  }

 private:
  // Fills tensors_, in the order in which the publishers, by rank, first list each tensor.
  void List() {
    std::unordered_map<std::string_view, std::size_t> places;
    std::uint32_t number = 0;
    for (std::uint32_t publisher = 0; publisher < manifests_.size(); ++publisher) {
      const Manifest& manifest = manifests_[publisher];
      for (std::uint32_t i = 0; i < manifest.size(); ++i) {
        const LaidOutTensor& tensor = manifest.layout()->tensors()[i];
        const auto [place, is_new] = places.try_emplace(tensor.spec.name, tensors_.size());
        if (is_new) tensors_.emplace_back();
        tensors_[place->second].push_back({publisher, number++, &tensor, &manifest.summaries()[i], BoxOf(tensor)});
      }
    }
  }

  std::string Who(const Held& held) const {
    return "publisher " + endpoints_[held.publisher] + " has " + TextOf(held.box);
  }

  [[noreturn]] void Refuse(const Held& of, const std::string& what) const {
    throw Error(ErrorCode::kInvalidArgument, Quote(of.tensor->spec.name) + " (" +
                                                 Describe(of.tensor->spec.dtype, WholeShape(*of.tensor)) +
                                                 ") in parts: " + what);
  }

  void CheckNoise() const {
    for (std::size_t i = 1; i < manifests_.size(); ++i) {
      if (manifests_[i].noise() == manifests_.front().noise()) continue;
      throw Error(ErrorCode::kInvalidArgument, manifests_[i].version().ToString() + ": publisher " + endpoints_[i] +
                                                   " has other noise for it than publisher " + endpoints_.front() +
                                                   ": expected the same of all");
    }
  }

  // Removes empty parts, sorts the rest, and throws unless they fill the tensor exactly once.
  void Check(std::vector<Held>& held) const {
    for (const Held& other : held) CheckAgrees(held.front(), other);
    for (const Held& one : held) CheckCuts(one);
    std::ranges::stable_sort(held, {}, [](const Held& one) { return one.box.begin; });
    if (held.size() > 1) {
      const auto empty =
          std::ranges::stable_partition(held, [](const Held& one) { return one.box.num_elements() != 0; });
      held.erase(std::max(empty.begin(), held.begin() + 1), held.end());  // of an empty tensor, one part stays
    }
    std::vector<Box> boxes;
    for (const Held& one : held) boxes.push_back(one.box);
    const Coverage coverage = Cover(boxes);
    if (coverage.Tiles(WholeShape(*held.front().tensor))) return;
    for (const auto& [a, b] : coverage.overlaps) {
      Refuse(held.front(), Who(held[a]) + " and " + Who(held[b]) + ": expected every element of one of them");
    }
    RefuseHole(held, boxes);
  }

  void CheckAgrees(const Held& one, const Held& other) const {
    if (one.tensor->spec.dtype == other.tensor->spec.dtype && WholeShape(*one.tensor) == WholeShape(*other.tensor))
      return;
    Refuse(one, Who(one) + " of it, and publisher " + endpoints_[other.publisher] + " a part of " +
                    Describe(other.tensor->spec.dtype, WholeShape(*other.tensor)));
  }

  void CheckCuts(const Held& held) const {
    const auto axis = FindCutBehind(*held.tensor);
    if (!axis || held.box.num_elements() == 0) return;
    Refuse(held, "publisher " + endpoints_[held.publisher] + " has " + ToString(held.tensor->spec.shape) +
                     " of it: expected a part that is cut along the first " + std::to_string(Box::kMaxRank) +
                     " axes, got one along axis " + std::to_string(*axis));
  }

  [[noreturn]] void RefuseHole(const std::vector<Held>& held, const std::vector<Box>& boxes) const {
    const Box hole = FindHole(Joined(WholeShape(*held.front().tensor)), boxes).value();
    std::string neighbours;
    for (const Held& one : held) {
      if (Touch(one.box, hole)) neighbours += (neighbours.empty() ? "; beside it " : ", ") + Who(one);
    }
    Refuse(held.front(), "no publisher has " + TextOf(hole) + neighbours);
  }

  static ManifestEntry Whole(const std::vector<Held>& held, const std::vector<HeldPart>& parts) {
    TensorSpec spec = held.front().tensor->spec;
    spec.shape = WholeShape(*held.front().tensor);
    std::vector<TensorSummary> summaries;
    for (const Held& one : held) summaries.push_back(*one.summary);
    const TensorSummary together = Together(parts, summaries);
    return {std::move(spec), together.digest, together.amax, {}};
  }

  const std::span<const Manifest> manifests_;
  const std::span<const std::string> endpoints_;
  std::vector<std::vector<Held>> tensors_;
};

}  // namespace

TensorSummary Together(std::span<const HeldPart> parts, std::span<const TensorSummary> summaries) {
  LAYERCAST_CHECK(parts.size() == summaries.size() && !parts.empty());
  if (parts.size() == 1) return summaries.front();
  TensorSummary whole{.digest = {}, .amax = 0};
  ByteWriter digested;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!summaries[i].digest) return {};
    whole.amax = std::max(whole.amax, summaries[i].amax);
    const Box& box = parts[i].box;
    for (std::size_t d = 0; d < box.rank; ++d) {
      digested.Put(static_cast<std::uint64_t>(box.begin[d]));
      digested.Put(static_cast<std::uint64_t>(box.extent[d]));
    }
    digested.Put(summaries[i].digest.high);
    digested.Put(summaries[i].digest.low);
  }
  whole.digest = DigestOf(digested.bytes());
  return whole;
}

MergedVersion Merge(std::span<const Manifest> manifests, std::span<const std::string> endpoints) {
  if (manifests.size() == 1) return {manifests.front(), {}};
  return Merger(manifests, endpoints).Run();
}

}  // namespace layercast
