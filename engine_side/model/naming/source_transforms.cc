#include "layercast/model/source_transforms.h"

#include <algorithm>
#include <utility>

#include "engine_side/model/naming/source_reading.h"
#include "layercast/error.h"
#include "layercast/tensor.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

using Kind = SourceTransform::Kind;
using Part = SourceTransform::Part;

std::string AxisText(std::size_t axis) { return " axis " + std::to_string(axis); }

}  // namespace

SourceTransform SourceTransform::Squeeze(NameRule::Match match, std::string from, std::size_t axis) {
  return {.match = match, .from = std::move(from), .kind = Kind::kSqueeze, .axis = axis};
}

SourceTransform SourceTransform::Reshape(NameRule::Match match, std::string from, Shape shape) {
  return {.match = match, .from = std::move(from), .kind = Kind::kReshape, .shape = std::move(shape)};
}

SourceTransform SourceTransform::Transpose(NameRule::Match match, std::string from) {
  return {.match = match, .from = std::move(from), .kind = Kind::kTranspose};
}

SourceTransform SourceTransform::Split(NameRule::Match match, std::string from, std::size_t axis,
                                       std::vector<Part> parts) {
  return {.match = match, .from = std::move(from), .kind = Kind::kSplit, .axis = axis, .parts = std::move(parts)};
}

SourceTransform SourceTransform::Deinterleave(NameRule::Match match, std::string from, std::size_t axis,
                                              std::vector<std::string> parts) {
  SourceTransform transform{.match = match, .from = std::move(from), .kind = Kind::kDeinterleave, .axis = axis};
  for (std::string& part : parts) transform.parts.push_back({std::move(part)});
  return transform;
}

std::string SourceTransform::Describe() const {
  std::string what;
  switch (kind) {
    case Kind::kSqueeze: what = "squeeze" + AxisText(axis); break;
    case Kind::kReshape: what = "reshape to " + ToString(shape); break;
    case Kind::kTranspose: what = "transpose"; break;
    case Kind::kSplit: what = "split" + AxisText(axis) + " into"; break;
    case Kind::kDeinterleave: what = "deinterleave" + AxisText(axis) + " into"; break;
  }
  for (const Part& part : parts) {
    what += (&part == parts.data() ? " " : ", ") + part.to;
    if (kind == Kind::kSplit) what += " (" + std::to_string(part.size) + ")";
  }
  return NameRule{match, from, {}, {}}.DescribeMatch() + ": " + what;
}

PlacedPiece SourceView::InSource(const PlacedPiece& piece) const {
  if (axes.empty()) return piece;
  PlacedPiece in_source = piece;
  in_source.source = within;
  const bool is_empty = piece.source.num_elements() == 0;
  if (is_empty) in_source.source.extent = {};
  for (std::size_t axis = 0; !is_empty && axis < axes.size(); ++axis) {
    const std::int64_t first = piece.source.begin[axis];
    const std::int64_t count = piece.source.extent[axis];
    if (NarrowDigits(in_source.source.begin, in_source.source.extent, axes[axis], first, count)) continue;
    throw Error(ErrorCode::kUnsupported, Quote(spec.name) + " " + Describe(spec) + ": elements " +
                                             std::to_string(first) + " to " + std::to_string(first + count) +
                                             " of axis " + std::to_string(axis) + " are no box of " +
                                             ToString(read_as) + ", which it is read as");
  }
  in_source.order.transposed = piece.order.transposed != transposed;
  return in_source;
}

// A declared transform, and a mapper of one rule that tells whether it matches a name.
struct SourceTransforms::Rule {
  SourceTransform transform;
  WeightsMapper matcher;
};

SourceTransforms::SourceTransforms(std::vector<SourceTransform> transforms) {
  if (transforms.empty()) return;
  auto rules = std::make_shared<std::vector<Rule>>();
  for (SourceTransform& transform : transforms) {
    const auto check = [&](bool holds, const char* expected) {
      if (!holds) throw Error(ErrorCode::kInvalidArgument, "'" + transform.Describe() + "': expected " + expected);
    };
    const Shape& shape = transform.shape;
    check(shape.size() <= Box::kMaxRank, "at most 5 axes");
    check(std::ranges::all_of(shape, [](std::int64_t extent) { return extent == -1 || extent > 0; }) &&
              std::ranges::count(shape, -1) <= 1,
          "extents of at least 1, or -1 once");
    const bool has_parts = transform.kind == Kind::kSplit || transform.kind == Kind::kDeinterleave;
    check(transform.parts.empty() != has_parts, "parts, where it is split or deinterleaved");
    check(transform.kind != Kind::kSplit ||
              std::ranges::all_of(transform.parts, [](const Part& part) { return part.size > 0; }),
          "parts of at least 1");
    WeightsMapper matcher({NameRule::Drop(transform.match, transform.from, "matches")});
    rules->push_back({std::move(transform), std::move(matcher)});
  }
  rules_ = std::move(rules);
}

bool SourceTransforms::Matches(std::string_view name) const {
  return rules_ != nullptr &&
         std::ranges::any_of(*rules_, [&](const Rule& rule) { return rule.matcher.Matches(name); });
}

std::vector<SourceView> SourceTransforms::Apply(const TensorSpec& spec) const {
  if (!Matches(spec.name)) return {{spec, spec.shape, {}, {}, false}};
  SourceReading reading(spec);
  for (const Rule& rule : *rules_) {
    if (rule.matcher.Matches(spec.name)) reading.Apply(rule.transform);
  }
  return reading.Views();
}

std::vector<std::string> SourceTransforms::Describe(std::string_view name) const {
  std::vector<std::string> described;
  if (rules_ == nullptr) return described;
  for (const Rule& rule : *rules_) {
    if (rule.matcher.Matches(name)) described.push_back(rule.transform.Describe());
  }
  return described;
}

std::vector<std::string> SourceTransforms::Describe() const {
  std::vector<std::string> described;
  if (rules_ == nullptr) return described;
  for (const Rule& rule : *rules_) described.push_back(rule.transform.Describe());
  return described;
}

}  // namespace layercast
