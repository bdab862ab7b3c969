#include "src/tensor/manifest.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "layercast/error.h"
#include "src/base/bytes.h"
#include "src/base/digest.h"
#include "src/base/utf8.h"
#include "src/tensor/manifest_form.h"
#include "src/tensor/tensor_part.h"

namespace layercast {
namespace {

constexpr std::size_t kLongestName = 4096;
constexpr std::size_t kLongestLineage = 1024;
constexpr std::size_t kMostDimensions = 64;

std::string Subject(std::size_t index, const TensorSpec& spec) {
  return "manifest: tensor " + std::to_string(index) + " " + Quote(spec.name) + ": ";
}

// Empty: fine; else what is wrong.
std::string TextProblem(std::string_view text, std::size_t shortest, std::size_t longest) {
  if (text.size() < shortest || text.size() > longest) {
    return "expected " + std::to_string(shortest) + " to " + std::to_string(longest) + " bytes, got " +
           std::to_string(text.size());
  }
  if (text.find('\0') != std::string_view::npos) return "holds a NUL";
  if (const auto offset = FindInvalidUtf8(text)) return "is not UTF-8 at byte " + std::to_string(*offset);
  return {};
}

// The tensor's bytes; throws kInvalidArgument if the form cannot hold it.
std::uint64_t CheckSpec(std::size_t index, const TensorSpec& spec) {
  const auto refuse = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, Subject(index, spec) + what);
  };
  if (const std::string problem = TextProblem(spec.name, 1, kLongestName); !problem.empty()) refuse("name: " + problem);
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

// Positions of entries, in the order in which they are written.
using Order = std::vector<std::uint32_t>;

Order AsListed(std::size_t count) {
  Order order(count);
  std::iota(order.begin(), order.end(), 0U);
  return order;
}

}  // namespace

Manifest::Manifest() : Manifest({}, 0, {}) {}

Manifest::Manifest(std::string lineage, std::uint64_t step, std::vector<ManifestEntry> entries, VersionPart part)
    : entries_(std::move(entries)), part_(part) {
  if (const std::string problem = TextProblem(lineage, 0, kLongestLineage); !problem.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "manifest: lineage " + Quote(lineage) + ": " + problem);
  }
  version_.lineage = std::move(lineage);
  version_.step = step;
  CheckEntries();
  IndexNames();

  ByteWriter layout;
  manifest_form::PutLayout({entries_, AsListed(entries_.size()), part_}, layout);
  layout_digest_ = DigestOf(layout.bytes());
  ByteWriter contents;
  manifest_form::PutLayout({entries_, by_name_, part_}, contents);
  manifest_form::PutValues({entries_, by_name_, part_}, contents);
  version_.digest = DigestOf(contents.bytes());
}

Manifest Manifest::OfSpecs(std::string lineage, std::uint64_t step, std::span<const TensorSpec> specs) {
  std::vector<ManifestEntry> entries;
  entries.reserve(specs.size());
  for (const TensorSpec& spec : specs) entries.push_back({.spec = spec, .digest = {}, .amax = -1});
  return Manifest(std::move(lineage), step, std::move(entries));
}

std::vector<TensorSpec> Manifest::specs() const {
  std::vector<TensorSpec> specs;
  specs.reserve(entries_.size());
  for (const ManifestEntry& entry : entries_) specs.push_back(entry.spec);
  return specs;
}

void Manifest::CheckPart(std::size_t index, ManifestEntry& entry) const {
  if (!entry.part) return;
  std::string problem = PartProblem(entry.spec, *entry.part);
  if (problem.empty() && entry.part->whole == entry.spec.shape) {
    entry.part.reset();
    return;
  }
  if (problem.empty() && part_.ranks == 1) {
    problem = "is " + Describe(entry.spec.shape, *entry.part) + ", and its publisher says that it is the only one";
  }
  if (!problem.empty()) throw Error(ErrorCode::kInvalidArgument, Subject(index, entry.spec) + problem);
}

void Manifest::CheckEntries() {
  if (part_.ranks < 1 || part_.rank < 0 || part_.rank >= part_.ranks ||
      static_cast<std::size_t>(part_.ranks) > manifest_form::kMostRanks) {
    throw Error(ErrorCode::kInvalidArgument, "manifest: expected a publisher's rank below their number, got rank " +
                                                 std::to_string(part_.rank) + " of " + std::to_string(part_.ranks));
  }
  if (entries_.size() > manifest_form::kMostTensors) {
    throw Error(ErrorCode::kInvalidArgument, "manifest: expected at most " +
                                                 std::to_string(manifest_form::kMostTensors) + " tensors, got " +
                                                 std::to_string(entries_.size()));
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    ManifestEntry& entry = entries_[i];
    total_bytes_ += CheckSpec(i, entry.spec);  // each is below 2^60, so this is seen before it wraps
    CheckPart(i, entry);
    if (total_bytes_ >> 63 != 0) {
      throw Error(ErrorCode::kInvalidArgument, Subject(i, entry.spec) + "with it the tensors exceed 2^63 bytes");
    }
    if (!std::isfinite(entry.amax)) {
      throw Error(ErrorCode::kInvalidArgument, Subject(i, entry.spec) + "amax is not finite");
    }
    if (entry.amax < 0.0F) entry.amax = manifest_form::kUnknownAmax;
    if (entry.amax == 0.0F) entry.amax = 0.0F;  // not -0
  }
}

void Manifest::IndexNames() {
  const auto name = [&](std::uint32_t index) -> std::string_view { return entries_[index].spec.name; };
  by_name_ = AsListed(entries_.size());
  std::ranges::sort(by_name_, {}, name);
  const auto repeated = std::ranges::adjacent_find(by_name_, {}, name);
  if (repeated != by_name_.end()) {
    throw Error(ErrorCode::kInvalidArgument, "manifest: tensors " + std::to_string(repeated[0]) + " and " +
                                                 std::to_string(repeated[1]) + " have the same name " +
                                                 Quote(name(repeated[0])));
  }
}

std::int64_t Manifest::Find(std::string_view name) const {
  const auto of = [&](std::uint32_t index) -> std::string_view { return entries_[index].spec.name; };
  const auto found = std::ranges::lower_bound(by_name_, name, {}, of);
  return found != by_name_.end() && of(*found) == name ? std::int64_t{*found} : -1;
}

std::vector<std::byte> Manifest::Encode() const {
  const Order order = AsListed(entries_.size());
  ByteWriter form;
  manifest_form::PutLayout({entries_, order, part_}, form);
  manifest_form::PutValues({entries_, order, part_}, form);
  manifest_form::PutLabel(version_, part_, form);
  return std::move(form).Take();
}

Manifest Manifest::Decode(std::span<const std::byte> bytes) {
  manifest_form::Fields fields = manifest_form::Get(bytes);
  try {
    return Manifest(std::move(fields.lineage), fields.step, std::move(fields.entries), fields.part);
  } catch (const Error& error) {
    // What a caller may not pass, bytes may not hold.
    throw Error(ErrorCode::kCorrupt, error.what());
  }
}

}  // namespace layercast
