#include "layercast/model/source_transforms.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

using Kind = SourceTransform::Kind;
using Part = SourceTransform::Part;

// Applies one transform to the views of one tensor.
class Reader {
 public:
  Reader(const TensorSpec& tensor, const SourceTransform& transform) : tensor_(tensor), transform_(transform) {}

  // As many views as the transform has parts; one, where it has none.
  std::vector<SourceView> Read(SourceView view) const {
    switch (transform_.kind) {
      case Kind::kSqueeze: return {Squeezed(std::move(view))};
      case Kind::kReshape: return {Reshaped(view)};
      case Kind::kTranspose: return {Transposed(std::move(view))};
      case Kind::kSplit: return Split(view);
      case Kind::kDeinterleave: break;
    }
    return Deinterleaved(view);
  }

 private:
  [[noreturn]] void Refuse(ErrorCode code, const std::string& what) const {
    throw Error(code,
                Quote(tensor_.name) + " " + layercast::Describe(tensor_) + ": " + transform_.Describe() + ": " + what);
  }

  std::size_t AxisOf(const SourceView& view) const {
    if (transform_.axis < view.axes.size()) return transform_.axis;
    Refuse(ErrorCode::kInvalidArgument, "there is no such axis of " + ToString(view.spec.shape));
  }

  SourceView ReadAs(const SourceView& view, Shape shape) const {
    if (view.within != Box::Whole(view.read_as) || !std::ranges::is_sorted(view.axes)) {
      Refuse(ErrorCode::kUnsupported, "expected it to come before what splits, deinterleaves or transposes: got " +
                                          ToString(view.spec.shape) + ", a view of " + ToString(view.read_as) +
                                          ", to be read as " + ToString(shape));
    }
    return SourceView::Whole({view.spec.name, view.spec.dtype, std::move(shape)});
  }

  // The axis stays in the source, where it is one index of it.
  SourceView Squeezed(SourceView view) const {
    const auto axis = static_cast<std::ptrdiff_t>(AxisOf(view));
    const std::int64_t extent = view.spec.shape[static_cast<std::size_t>(axis)];
    if (extent != 1) Refuse(ErrorCode::kInvalidArgument, "expected an axis of 1, got " + std::to_string(extent));
    view.spec.shape.erase(view.spec.shape.begin() + axis);
    view.axes.erase(view.axes.begin() + axis);
    return view;
  }

  SourceView Reshaped(const SourceView& view) const {
    const std::int64_t elements = view.spec.num_elements();
    Shape shape = transform_.shape;
    const auto rest = std::ranges::find(shape, -1);
    if (rest != shape.end()) {
      *rest = 1;
      *rest = elements / TensorSpec{{}, view.spec.dtype, shape}.num_elements();
    }
    if (TensorSpec{{}, view.spec.dtype, shape}.num_elements() == elements) return ReadAs(view, std::move(shape));
    Refuse(ErrorCode::kInvalidArgument,
           "expected a shape of " + std::to_string(elements) + " elements, got " + ToString(transform_.shape));
  }

  SourceView Transposed(SourceView view) const {
    const std::size_t rank = view.axes.size();
    if (rank < 2) Refuse(ErrorCode::kInvalidArgument, "expected two axes or more, got " + ToString(view.spec.shape));
    std::swap(view.axes[rank - 2], view.axes[rank - 1]);
    std::swap(view.spec.shape[rank - 2], view.spec.shape[rank - 1]);
    return view;
  }

  std::vector<SourceView> Split(const SourceView& view) const {
    const std::size_t axis = AxisOf(view);
    const std::int64_t sizes = std::accumulate(transform_.parts.begin(), transform_.parts.end(), std::int64_t{0},
                                               [](std::int64_t sum, const Part& part) { return sum + part.size; });
    if (sizes != view.spec.shape[axis]) {
      Refuse(ErrorCode::kInvalidArgument,
             "expected parts of " + std::to_string(view.spec.shape[axis]) + " together, got " + std::to_string(sizes));
    }
    std::vector<SourceView> views;
    std::int64_t first = view.within.begin[view.axes[axis]];
    for (const Part& part : transform_.parts) {
      SourceView& of_part = views.emplace_back(Named(view, part));
      of_part.spec.shape[axis] = part.size;
      of_part.within.begin[view.axes[axis]] = first;
      of_part.within.extent[view.axes[axis]] = part.size;
      first += part.size;
    }
    return views;
  }

  // [turns * parts, ...] is read as [turns, parts, ...], and each part is one index of the new axis.
  std::vector<SourceView> Deinterleaved(const SourceView& view) const {
    const std::size_t axis = AxisOf(view);
    const std::uint8_t source_axis = view.axes[axis];
    const auto parts = static_cast<std::int64_t>(transform_.parts.size());
    CheckTakesTurns(view, source_axis, parts);
    SourceView turns = view;
    turns.spec.shape[axis] /= parts;
    Shape& shape = turns.read_as;
    shape[source_axis] /= parts;
    shape.insert(shape.begin() + source_axis + 1, parts);
    for (std::uint8_t& other : turns.axes) {
      if (other > source_axis) ++other;
    }
    for (std::size_t d = view.within.rank; d-- > source_axis + 1U;) {
      turns.within.begin[d + 1] = view.within.begin[d];
      turns.within.extent[d + 1] = view.within.extent[d];
    }
    ++turns.within.rank;
    turns.within.extent[source_axis] = shape[source_axis];
    turns.within.extent[source_axis + 1U] = 1;
    std::vector<SourceView> views;
    for (const Part& part : transform_.parts) {
      turns.within.begin[source_axis + 1U] = static_cast<std::int64_t>(views.size());
      views.push_back(Named(turns, part));
    }
    return views;
  }

  void CheckTakesTurns(const SourceView& view, std::uint8_t axis, std::int64_t parts) const {
    const std::int64_t extent = view.read_as[axis];
    if (extent % parts != 0) {
      Refuse(ErrorCode::kInvalidArgument,
             "expected an axis that is a multiple of " + std::to_string(parts) + ", got " + std::to_string(extent));
    }
    if (view.within.extent[axis] != extent) {
      Refuse(ErrorCode::kUnsupported, "expected it to come before what splits this axis: got " +
                                          std::to_string(view.within.extent[axis]) + " of " + std::to_string(extent));
    }
    if (view.read_as.size() == Box::kMaxRank) {
      Refuse(ErrorCode::kUnsupported,
             "expected fewer than " + std::to_string(Box::kMaxRank) + " axes, got " + ToString(view.read_as));
    }
  }

  SourceView Named(const SourceView& view, const Part& part) const {
    SourceView named = view;
    named.spec.name = WeightsMapper({{transform_.match, transform_.from, part.to, {}}}).Map(view.spec.name).name;
    return named;
  }

  const TensorSpec& tensor_;
  const SourceTransform& transform_;
};

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

SourceView SourceView::Whole(const TensorSpec& spec) {
  SourceView view{spec, spec.shape, Box::Whole(spec.shape), {}};
  for (std::uint8_t axis = 0; axis < view.within.rank; ++axis) view.axes.push_back(axis);
  return view;
}

PlacedPiece SourceView::InSource(const PlacedPiece& piece) const {
  if (axes.empty()) return piece;
  PlacedPiece in_source = piece;
  in_source.source = within;
  for (std::size_t axis = 0; axis < axes.size(); ++axis) {
    in_source.source.begin[axes[axis]] += piece.source.begin[axis];
    in_source.source.extent[axes[axis]] = piece.source.extent[axis];
  }
  if (!std::ranges::is_sorted(axes)) in_source.order.transposed = !piece.order.transposed;
  return in_source;
}

// A declaration, and what says whether it matches: a mapper of one rule.
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
    check(shape.size() <= Box::kMaxRank, "at most 4 axes");
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
  if (!Matches(spec.name)) return {{spec, spec.shape, {}, {}}};
  std::vector<SourceView> views = {SourceView::Whole(spec)};
  for (const Rule& rule : *rules_) {
    if (!rule.matcher.Matches(spec.name)) continue;
    std::vector<SourceView> read;
    for (SourceView& view : views)
      std::ranges::move(Reader(spec, rule.transform).Read(std::move(view)), std::back_inserter(read));
    views = std::move(read);
  }
  return views;
}

std::vector<std::string> SourceTransforms::Describe(std::string_view name) const {
  std::vector<std::string> described;
  if (rules_ == nullptr) return described;
  for (const Rule& rule : *rules_) {
    if (rule.matcher.Matches(name)) described.push_back(rule.transform.Describe());
  }
  return described;
}

}  // namespace layercast
