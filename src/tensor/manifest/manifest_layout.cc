#include "src/tensor/manifest/manifest_layout.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "src/base/bytes/archive.h"
#include "src/base/utf8.h"
#include "src/tensor/manifest/manifest_form.h"
#include "src/tensor/tensor_part.h"

namespace layercast {
namespace {

constexpr std::size_t kLongestName = 4096;
constexpr std::size_t kMostDimensions = 64;

std::string Subject(std::size_t index, const TensorSpec& spec) {
  return "manifest: tensor " + std::to_string(index) + " " + Quote(spec.name) + ": ";
}

// How many bytes the tensor has. Throws kInvalidArgument if the form cannot hold it.
std::uint64_t CheckSpec(std::size_t index, const TensorSpec& spec) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, Subject(index, spec) + what);
  };
  const std::string problem = manifest_form::TextProblem(spec.name, 1, kLongestName);
  if (!problem.empty()) refuse("name: " + problem);
  if (spec.shape.size() > kMostDimensions) {
    refuse("expected at most " + std::to_string(kMostDimensions) + " dimensions, got " +
           std::to_string(spec.shape.size()));
  }
  try {
    return static_cast<std::uint64_t>(spec.num_bytes());
  } catch (const Error& error) {
    refuse(error.what());
  }
  return 0;
}

Shape OffsetsOf(const LaidOutTensor& tensor) { return tensor.part ? tensor.part->offsets : Shape(); }

std::vector<std::uint32_t> AsListed(std::size_t count) {
  std::vector<std::uint32_t> order(count);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

}  // namespace

ManifestLayout::ManifestLayout(std::vector<LaidOutTensor> tensors, bool shared)
    : tensors_(std::move(tensors)), shared_(shared) {
  Check();
  IndexNames();
  ArchiveWriter form;
  manifest_form::PutLayout(tensors_, AsListed(tensors_.size()), shared, form);
  form_ = std::move(form).Take();
  digest_ = DigestOf(form_);
  ArchiveWriter sorted;
  manifest_form::PutLayout(tensors_, by_name_, shared, sorted);
  sorted_.Update(sorted.bytes());
}

std::shared_ptr<const ManifestLayout> ManifestLayout::Of(std::vector<LaidOutTensor> tensors, bool shared,
                                                         std::shared_ptr<const ManifestLayout> known) {
  if (known != nullptr && known->shared() == shared && known->tensors() == tensors) return known;
  return std::make_shared<const ManifestLayout>(std::move(tensors), shared);
}

void ManifestLayout::CheckPart(std::size_t index, LaidOutTensor& tensor) const {
  if (!tensor.part) return;
  std::string problem = PartProblem(tensor.spec, *tensor.part);
  if (problem.empty() && tensor.part->whole == tensor.spec.shape) {
    tensor.part.reset();
    return;
  }
  if (problem.empty() && !shared_) {
    problem = "is " + Describe(tensor.spec.shape, *tensor.part) + ", and its publisher says that it is the only one";
  }
  if (!problem.empty()) throw Error(ErrorCode::kInvalidArgument, Subject(index, tensor.spec) + problem);
}

void ManifestLayout::Check() {
  if (tensors_.size() > manifest_form::kMostTensors) {
    throw Error(ErrorCode::kInvalidArgument, "manifest: expected at most " +
                                                 std::to_string(manifest_form::kMostTensors) + " tensors, got " +
                                                 std::to_string(tensors_.size()));
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) {
    LaidOutTensor& tensor = tensors_[i];
    total_bytes_ += CheckSpec(i, tensor.spec);  // each is below 2^60, so too large a sum is seen before it wraps
    CheckPart(i, tensor);
    if (total_bytes_ >> 63 != 0) {
      throw Error(ErrorCode::kInvalidArgument, Subject(i, tensor.spec) + "with it the tensors exceed 2^63 bytes");
    }
  }
}

void ManifestLayout::IndexNames() {
  by_name_ = AsListed(tensors_.size());
  std::ranges::sort(by_name_, [this](std::uint32_t a, std::uint32_t b) {
    const int names = tensors_[a].spec.name.compare(tensors_[b].spec.name);
    if (names != 0) return names < 0;
    return std::pair(OffsetsOf(tensors_[a]), a) < std::pair(OffsetsOf(tensors_[b]), b);
  });
  for (std::size_t i = 1; i < by_name_.size(); ++i) CheckNeighbours(by_name_[i - 1], by_name_[i]);
}

// One publisher may hold several parts of a tensor, each once.
void ManifestLayout::CheckNeighbours(std::uint32_t first, std::uint32_t second) const {
  const LaidOutTensor& a = tensors_[first];
  const LaidOutTensor& b = tensors_[second];
  if (a.spec.name != b.spec.name) return;
  std::string problem;
  if (!a.part || !b.part || a.part->offsets == b.part->offsets) {
    problem = " have the same name " + Quote(a.spec.name);
    if (a.part && b.part) problem += " and begin at the same " + ToString(a.part->offsets);
  } else if (a.spec.dtype != b.spec.dtype || a.part->whole != b.part->whole) {
    problem = " are parts of " + Quote(a.spec.name) + ": expected the same whole, got " +
              layercast::Describe(a.spec.dtype, a.part->whole) + " and " +
              layercast::Describe(b.spec.dtype, b.part->whole);
  }
  if (problem.empty()) return;
  throw Error(ErrorCode::kInvalidArgument,
              "manifest: tensors " + std::to_string(first) + " and " + std::to_string(second) + problem);
}

std::int64_t ManifestLayout::Find(std::string_view name, const std::optional<TensorPart>& part) const {
  const auto name_of = [this](std::uint32_t index) -> std::string_view { return tensors_[index].spec.name; };
  auto found = std::ranges::lower_bound(by_name_, name, {}, name_of);
  if (found == by_name_.end() || name_of(*found) != name) return -1;
  const bool alone = found + 1 == by_name_.end() || name_of(found[1]) != name;
  if (alone || !part) return std::int64_t{*found};
  const auto end = std::upper_bound(
      found, by_name_.end(), name, [&](std::string_view value, std::uint32_t index) { return value < name_of(index); });
  const auto offsets_of = [this](std::uint32_t index) -> const Shape& { return tensors_[index].part->offsets; };
  found = std::ranges::lower_bound(found, end, part->offsets, {}, offsets_of);
  return found != end && offsets_of(*found) == part->offsets ? std::int64_t{*found} : -1;
}

}  // namespace layercast
