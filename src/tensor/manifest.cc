// MANIFEST.md specifies the form that is written and read here.
#include "src/tensor/manifest.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>
#include <utility>

#include "layercast/error.h"
#include "src/base/bytes.h"
#include "src/base/digest.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::string_view kMagic("LCMANIF\0", 8);
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kMostTensors = 4194304;
constexpr std::size_t kLongestName = 4096;
constexpr std::size_t kLongestLineage = 1024;
constexpr std::size_t kMostDimensions = 64;
constexpr std::size_t kSmallestLayout = 2 + 1 + 1 + 1;  // one tensor's: a name of one byte, a scalar
constexpr std::size_t kValuesBytes = 16 + 4;
constexpr float kUnknownAmax = -1.0F;

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

void PutLayout(const std::vector<ManifestEntry>& entries, const Order& order, ByteWriter& out) {
  out.PutBytes(kMagic);
  out.Put(kFormat);
  out.Put(static_cast<std::uint32_t>(entries.size()));
  for (const std::uint32_t index : order) {
    const TensorSpec& spec = entries[index].spec;
    out.Put(static_cast<std::uint16_t>(spec.name.size()));
    out.PutBytes(spec.name);
    out.Put(static_cast<std::uint8_t>(spec.dtype));
    out.Put(static_cast<std::uint8_t>(spec.shape.size()));
    for (const std::int64_t dim : spec.shape) out.Put(static_cast<std::uint64_t>(dim));
  }
}

void PutValues(const std::vector<ManifestEntry>& entries, const Order& order, ByteWriter& out) {
  for (const std::uint32_t index : order) {
    out.Put(entries[index].digest.high);
    out.Put(entries[index].digest.low);
    out.Put(std::bit_cast<std::uint32_t>(entries[index].amax));
  }
}

ManifestEntry GetLayout(ByteReader& in) {
  ManifestEntry entry;
  entry.spec.name = in.GetText(in.Get<std::uint16_t>("a name's length"), "a name");
  const auto dtype = in.Get<std::uint8_t>("a dtype");
  if (dtype >= AllDTypes().size()) in.Fail(Quote(entry.spec.name) + ": unknown dtype " + std::to_string(dtype));
  entry.spec.dtype = static_cast<DType>(dtype);
  const auto rank = in.Get<std::uint8_t>("a rank");
  for (unsigned i = 0; i < rank; ++i) {
    const auto dim = in.Get<std::uint64_t>("a dimension");
    if (dim >> 63 != 0)
      in.Fail(Quote(entry.spec.name) + ": expected a dimension below 2^63, got " + std::to_string(dim));
    entry.spec.shape.push_back(static_cast<std::int64_t>(dim));
  }
  return entry;
}

void GetValues(ByteReader& in, ManifestEntry& entry) {
  entry.digest.high = in.Get<std::uint64_t>("a digest");
  entry.digest.low = in.Get<std::uint64_t>("a digest");
  entry.amax = std::bit_cast<float>(in.Get<std::uint32_t>("an amax"));
  const bool known = std::isfinite(entry.amax) && !std::signbit(entry.amax);
  if (!known && entry.amax != kUnknownAmax) {
    in.Fail(Quote(entry.spec.name) + ": expected a finite amax of at least 0, or -1, got " +
            std::to_string(entry.amax));
  }
}

std::uint32_t GetCount(ByteReader& in) {
  if (in.GetText(kMagic.size(), "the magic") != kMagic) in.Fail("this is not a manifest: its magic is another");
  const auto format = in.Get<std::uint32_t>("the format version");
  if (format != kFormat) in.Fail("expected format 1, got " + std::to_string(format));
  const auto count = in.Get<std::uint32_t>("the number of tensors");
  // Before anything is allocated for them.
  if (count > kMostTensors || count > in.remaining() / (kSmallestLayout + kValuesBytes)) {
    in.Fail(std::to_string(count) + " tensors do not fit the " + std::to_string(in.remaining()) + " bytes that follow");
  }
  return count;
}

}  // namespace

Manifest::Manifest() : Manifest({}, 0, {}) {}

Manifest::Manifest(std::string lineage, std::uint64_t step, std::vector<ManifestEntry> entries)
    : entries_(std::move(entries)) {
  if (const std::string problem = TextProblem(lineage, 0, kLongestLineage); !problem.empty()) {
    throw Error(ErrorCode::kInvalidArgument, "manifest: lineage " + Quote(lineage) + ": " + problem);
  }
  version_.lineage = std::move(lineage);
  version_.step = step;
  CheckEntries();
  IndexNames();

  ByteWriter layout;
  PutLayout(entries_, AsListed(entries_.size()), layout);
  layout_digest_ = DigestOf(layout.bytes());
  ByteWriter contents;
  PutLayout(entries_, by_name_, contents);
  PutValues(entries_, by_name_, contents);
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

void Manifest::CheckEntries() {
  if (entries_.size() > kMostTensors) {
    throw Error(ErrorCode::kInvalidArgument, "manifest: expected at most " + std::to_string(kMostTensors) +
                                                 " tensors, got " + std::to_string(entries_.size()));
  }
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    ManifestEntry& entry = entries_[i];
    total_bytes_ += CheckSpec(i, entry.spec);  // each is below 2^60, so this is seen before it wraps
    if (total_bytes_ >> 63 != 0) {
      throw Error(ErrorCode::kInvalidArgument, Subject(i, entry.spec) + "with it the tensors exceed 2^63 bytes");
    }
    if (!std::isfinite(entry.amax)) {
      throw Error(ErrorCode::kInvalidArgument, Subject(i, entry.spec) + "amax is not finite");
    }
    if (entry.amax < 0.0F) entry.amax = kUnknownAmax;
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
  PutLayout(entries_, order, form);
  PutValues(entries_, order, form);
  form.Put(static_cast<std::uint16_t>(version_.lineage.size()));
  form.PutBytes(version_.lineage);
  form.Put(version_.step);
  return std::move(form).Take();
}

Manifest Manifest::Decode(std::span<const std::byte> bytes) {
  ByteReader in("manifest", bytes);
  std::vector<ManifestEntry> entries(GetCount(in));
  for (ManifestEntry& entry : entries) entry = GetLayout(in);
  for (ManifestEntry& entry : entries) GetValues(in, entry);
  std::string lineage = in.GetText(in.Get<std::uint16_t>("the lineage's length"), "the lineage");
  const auto step = in.Get<std::uint64_t>("the step");
  in.ExpectEnd();
  try {
    return Manifest(std::move(lineage), step, std::move(entries));
  } catch (const Error& error) {
    // What a caller may not pass, bytes may not hold.
    throw Error(ErrorCode::kCorrupt, error.what());
  }
}

}  // namespace layercast
