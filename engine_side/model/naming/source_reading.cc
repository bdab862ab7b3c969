#include "engine_side/model/naming/source_reading.h"

#include <algorithm>
#include <utility>

#include "layercast/tensor.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

using Kind = SourceTransform::Kind;

Digits Flat(std::span<const Digits> axes) {
  Digits flat;
  for (const Digits& digits : axes) flat.insert(flat.end(), digits.begin(), digits.end());
  return flat;
}

bool HaveInTurn(std::span<const Digits> axes, std::uint8_t first) {
  return std::ranges::any_of(axes, [&](const Digits& digits) {
    const auto at = std::ranges::find(digits, first);
    return at != digits.end() && at + 1 != digits.end() && at[1] == first + 1;
  });
}

}  // namespace

bool NarrowDigits(std::span<std::int64_t> begin, std::span<std::int64_t> extent, const Digits& digits,
                  std::int64_t first, std::int64_t count) {
  const auto of = [&](std::size_t i) { return extent[digits[i]]; };
  std::int64_t below = 1;  // how many elements one step of the current digit spans
  for (const std::uint8_t digit : digits) below *= extent[digit];
  if (first == 0 && count == below) return true;
  // Looks for the digit of which only some steps are taken: of every more significant digit exactly one step, of every
  // less significant one all steps.
  for (std::size_t i = 0; i < digits.size(); ++i) {
    below /= of(i);
    if (first % below != 0 || count % below != 0 || first / below % of(i) + count / below > of(i)) continue;
    begin[digits[i]] += first / below % of(i);
    std::int64_t step = first / below / of(i);
    extent[digits[i]] = count / below;
    for (std::size_t above = i; above-- > 0;) {
      begin[digits[above]] += step % of(above);
      step /= of(above);
      extent[digits[above]] = 1;
    }
    return true;
  }
  return false;
}

SourceReading::SourceReading(const TensorSpec& tensor) : tensor_(tensor), source_(tensor.shape) {
  Part whole{tensor, std::vector<std::int64_t>(source_.size()), source_, {}};
  for (std::size_t axis = 0; axis < source_.size(); ++axis) {
    whole.axes.push_back(source_[axis] == 1 ? Digits{} : Digits{static_cast<std::uint8_t>(axis)});
  }
  parts_.push_back(std::move(whole));
}

void SourceReading::Refuse(ErrorCode code, const std::string& what) const {
  throw Error(code,
              Quote(tensor_.name) + " " + layercast::Describe(tensor_) + ": " + transform_->Describe() + ": " + what);
}

void SourceReading::Apply(const SourceTransform& transform) {
  transform_ = &transform;
  if (tensor_.num_elements() == 0) Refuse(ErrorCode::kInvalidArgument, "expected a tensor of at least one element");
  switch (transform.kind) {
    case Kind::kSqueeze:
      for (Part& part : parts_) Squeeze(part);
      return;
    case Kind::kTranspose:
      for (Part& part : parts_) Transpose(part);
      return;
    case Kind::kReshape: return Reshape();
    case Kind::kSplit: {
      std::vector<Part> split;
      for (const Part& part : parts_) std::ranges::move(Split(part), std::back_inserter(split));
      parts_ = std::move(split);
      return;
    }
    case Kind::kDeinterleave: return Deinterleave();
  }
}

std::size_t SourceReading::AxisOf(const Part& part) const {
  if (transform_->axis < part.axes.size()) return transform_->axis;
  Refuse(ErrorCode::kInvalidArgument, "there is no such axis of " + ToString(part.spec.shape));
}

void SourceReading::Squeeze(Part& part) const {
  const auto axis = static_cast<std::ptrdiff_t>(AxisOf(part));
  const std::int64_t extent = part.spec.shape[static_cast<std::size_t>(axis)];
  if (extent != 1) Refuse(ErrorCode::kInvalidArgument, "expected an axis of 1, got " + std::to_string(extent));
  part.spec.shape.erase(part.spec.shape.begin() + axis);
  part.axes.erase(part.axes.begin() + axis);
}

void SourceReading::Transpose(Part& part) const {
  const std::size_t rank = part.axes.size();
  if (rank < 2) Refuse(ErrorCode::kInvalidArgument, "expected two axes or more, got " + ToString(part.spec.shape));
  std::swap(part.axes[rank - 2], part.axes[rank - 1]);
  std::swap(part.spec.shape[rank - 2], part.spec.shape[rank - 1]);
}

Shape SourceReading::WantedShape(const Part& part) const {
  const std::int64_t elements = part.spec.num_elements();
  Shape shape = transform_->shape;
  std::int64_t left = elements;  // what is left after dividing by the extents so far
  bool fits = true;
  for (const std::int64_t extent : shape) {
    if (extent == -1) continue;
    fits = fits && left % extent == 0;
    left /= extent;
  }
  const auto rest = std::ranges::find(shape, -1);
  if (rest != shape.end()) *rest = std::exchange(left, 1);
  if (fits && left == 1) return shape;
  Refuse(ErrorCode::kInvalidArgument,
         "expected a shape of " + std::to_string(elements) + " elements, got " + ToString(transform_->shape));
}

void SourceReading::Reshape() {
  for (Part& part : parts_) {
    part.axes = {Flat(part.axes)};
    part.spec.shape = {part.spec.num_elements()};
  }
  JoinAxes();
  Regroup(0, [&](const Part& part) { return WantedShape(part); });
}

// Replaces axis `axis` of each part by axes of the shape that `shape_of` gives for that part.
void SourceReading::Regroup(std::size_t axis, const ShapeOf& shape_of) {
  std::vector<Shape> shapes;
  for (const Part& part : parts_) shapes.push_back(shape_of(part));
  for (std::size_t i = 0; i < parts_.size(); ++i) {
    while (!RegroupPart(parts_[i], axis, shapes[i])) {
    }
  }
  JoinAxes();
}

// Takes digits from the least significant one on, as many as make up each axis. Returns false if it had to cut a source
// axis in two for that: the caller then tries again.
bool SourceReading::RegroupPart(Part& part, std::size_t axis, const Shape& shape) {
  Digits left = part.axes[axis];
  std::vector<Digits> axes(shape.size());
  for (std::size_t to = shape.size(); to-- > 0;) {
    for (std::int64_t wanted = shape[to]; wanted > 1; left.pop_back()) {
      const std::uint8_t digit = left.back();
      const std::int64_t extent = part.extent[digit];
      if (wanted % extent != 0) {
        if (extent % wanted != 0) {
          Refuse(ErrorCode::kUnsupported,
                 "expected axes that make up, or are made up of, those that it is read in, got " +
                     ToString(part.spec.shape) + " to be read as " + ToString(shape) + ", and " +
                     std::to_string(wanted) + " of a run of " + std::to_string(extent));
        }
        Cut(digit, wanted);
        return false;
      }
      axes[to].insert(axes[to].begin(), digit);
      wanted /= extent;
    }
  }
  const auto at = static_cast<std::ptrdiff_t>(axis);
  part.axes.erase(part.axes.begin() + at);
  part.axes.insert(part.axes.begin() + at, axes.begin(), axes.end());
  part.spec.shape.erase(part.spec.shape.begin() + at);
  part.spec.shape.insert(part.spec.shape.begin() + at, shape.begin(), shape.end());
  return true;
}

// From now on reads the source's axis as two, the second of extent `inner`, in all parts.
void SourceReading::Cut(std::uint8_t axis, std::int64_t inner) {
  const std::int64_t whole = source_[axis];
  for (Part& part : parts_) {
    const std::int64_t begin = part.begin[axis];
    const std::int64_t extent = part.extent[axis];
    const bool steps = begin % inner == 0 && extent % inner == 0;
    if (whole % inner != 0 || (!steps && begin / inner != (begin + extent - 1) / inner)) {
      Refuse(ErrorCode::kUnsupported, "expected parts that begin and end at multiples of " + std::to_string(inner) +
                                          ", got elements " + std::to_string(begin) + " to " +
                                          std::to_string(begin + extent) + " of " + std::to_string(whole));
    }
    const auto next = static_cast<std::ptrdiff_t>(axis) + 1;
    part.begin[axis] = begin / inner;
    part.begin.insert(part.begin.begin() + next, steps ? 0 : begin % inner);
    part.extent[axis] = steps ? extent / inner : 1;
    part.extent.insert(part.extent.begin() + next, steps ? inner : extent);
    for (Digits& digits : part.axes) {
      for (std::uint8_t& digit : digits) digit = static_cast<std::uint8_t>(digit + (digit > axis ? 1 : 0));
      const auto at = std::ranges::find(digits, axis);
      if (at == digits.end()) continue;
      digits.insert(at + 1, static_cast<std::uint8_t>(axis + 1));
      std::erase_if(digits, [&](std::uint8_t digit) { return part.extent[digit] == 1; });
    }
  }
  source_[axis] /= inner;
  source_.insert(source_.begin() + axis + 1, inner);
}

// Joins neighbouring source axes into one if all parts have them one right after the other, or if one of them has
// extent 1.
void SourceReading::JoinAxes() {
  for (std::size_t last = source_.size(); last-- > 1;) {
    const auto axis = static_cast<std::uint8_t>(last - 1);
    if (!CanJoin(axis)) continue;
    for (Part& part : parts_) {
      part.begin[axis] = part.begin[axis] * source_[last] + part.begin[last];
      part.extent[axis] *= part.extent[last];
      part.begin.erase(part.begin.begin() + axis + 1);
      part.extent.erase(part.extent.begin() + axis + 1);
      for (Digits& digits : part.axes) {
        for (std::uint8_t& digit : digits) digit = static_cast<std::uint8_t>(digit - (digit > axis ? 1 : 0));
        digits.erase(std::ranges::unique(digits).begin(), digits.end());
      }
    }
    source_[axis] *= source_[last];
    source_.erase(source_.begin() + axis + 1);
  }
}

bool SourceReading::CanJoin(std::uint8_t axis) const {
  if (source_[axis] == 1 || source_[axis + 1U] == 1) return true;
  return std::ranges::all_of(parts_, [&](const Part& part) {
    return part.extent[axis + 1U] == source_[axis + 1U] && HaveInTurn(part.axes, axis);
  });
}

SourceReading::Part SourceReading::Narrowed(const Part& part, const std::string& to, std::size_t axis,
                                            std::int64_t first, std::int64_t count) const {
  Part narrow = part;
  narrow.spec.name = WeightsMapper({{transform_->match, transform_->from, to, {}}}).Map(part.spec.name).name;
  if (!NarrowDigits(narrow.begin, narrow.extent, part.axes[axis], first, count)) {
    Refuse(ErrorCode::kUnsupported, "elements " + std::to_string(first) + " to " + std::to_string(first + count) +
                                        " of axis " + std::to_string(axis) + " of " + ToString(part.spec.shape) +
                                        " are no box of " + ToString(source_) + ", which it is read as");
  }
  narrow.spec.shape[axis] = count;
  std::erase_if(narrow.axes[axis], [&](std::uint8_t digit) { return narrow.extent[digit] == 1; });
  return narrow;
}

std::vector<SourceReading::Part> SourceReading::Split(const Part& part) const {
  const std::size_t axis = AxisOf(part);
  const auto& into = transform_->parts;
  std::int64_t sizes = 0;
  bool overflows = false;
  for (const SourceTransform::Part& to : into) overflows |= __builtin_add_overflow(sizes, to.size, &sizes);
  if (overflows || sizes != part.spec.shape[axis]) {
    Refuse(ErrorCode::kInvalidArgument, "expected parts of " + std::to_string(part.spec.shape[axis]) +
                                            " together, got " + (overflows ? "more than 2^63" : std::to_string(sizes)));
  }
  std::vector<Part> split;
  std::int64_t first = 0;
  for (const SourceTransform::Part& to : into) {
    split.push_back(Narrowed(part, to.to, axis, first, to.size));
    first += to.size;
  }
  return split;
}

// Reads [turns * parts, ...] as [turns, parts, ...]; each part is then one index of the new axis.
void SourceReading::Deinterleave() {
  const auto& into = transform_->parts;
  const auto count = static_cast<std::int64_t>(into.size());
  Regroup(transform_->axis, [&](const Part& part) {
    const std::int64_t extent = part.spec.shape[AxisOf(part)];
    if (extent % count != 0) {
      Refuse(ErrorCode::kInvalidArgument,
             "expected an axis that is a multiple of " + std::to_string(count) + ", got " + std::to_string(extent));
    }
    return Shape{extent / count, count};
  });
  const std::size_t turn = transform_->axis + 1;
  std::vector<Part> parts;
  for (const Part& part : parts_) {
    for (std::size_t i = 0; i < into.size(); ++i) {
      Part& one = parts.emplace_back(Narrowed(part, into[i].to, turn, static_cast<std::int64_t>(i), 1));
      one.axes.erase(one.axes.begin() + static_cast<std::ptrdiff_t>(turn));
      one.spec.shape.erase(one.spec.shape.begin() + static_cast<std::ptrdiff_t>(turn));
    }
  }
  parts_ = std::move(parts);
}

std::vector<SourceView> SourceReading::Views() {
  if (source_.size() > Box::kMaxRank) JoinAxes();
  if (source_.size() > Box::kMaxRank) {
    Refuse(ErrorCode::kUnsupported,
           "expected at most " + std::to_string(Box::kMaxRank) + " axes to be read, got " + ToString(source_));
  }
  std::vector<SourceView> views;
  for (const Part& part : parts_) views.push_back(ViewOf(part));
  return views;
}

SourceView SourceReading::ViewOf(const Part& part) const {
  SourceView view{part.spec, source_, Box::Whole(source_), part.axes, false};
  std::ranges::copy(part.begin, view.within.begin.begin());
  std::ranges::copy(part.extent, view.within.extent.begin());
  std::vector<Digits> axes = part.axes;
  if (std::ranges::is_sorted(Flat(axes))) return view;
  if (axes.size() > 1) std::swap(axes[axes.size() - 2], axes.back());
  view.transposed = true;
  if (std::ranges::is_sorted(Flat(axes))) return view;
  std::string order;
  for (const std::uint8_t digit : Flat(part.axes)) order += (order.empty() ? "" : ", ") + std::to_string(digit);
  Refuse(ErrorCode::kUnsupported,
         "expected axes in the order in which they are read, or the last two the other way "
         "round, got " +
             ToString(part.spec.shape) + " of axes " + order + " of " + ToString(source_));
}

}  // namespace layercast
