#include "engine_side/reload/work/wrong_values.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "engine_side/quant/kernel_tensors.h"
#include "engine_side/quant/recipes/recipe_parts.h"
#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/utf8.h"
#include "src/tensor/cast.h"
#include "src/tensor/conversions.h"
#include "src/tensor/element.h"
#include "src/tensor/walk.h"

namespace layercast {
namespace {

// The number, among a placement's elements in the source's order, of the parameter's element with this index. Empty if
// the placement does not fill it.
std::optional<std::int64_t> NumberIn(const Placement& placement, const Shape& parameter, std::int64_t index) {
  const Box& box = placement.destination;
  std::array<std::int64_t, Box::kMaxRank> at{};
  std::array<std::int64_t, Box::kMaxRank> extent = box.extent;
  for (std::size_t d = box.rank; d-- > 0; index /= parameter[d]) {
    at[d] = index % parameter[d] - box.begin[d];
    if (at[d] < 0 || at[d] >= extent[d]) return std::nullopt;
  }
  if (placement.order.interleaved) {
    const std::int64_t half = extent[1] / 2;
    at[1] = at[1] < half ? 2 * at[1] : 2 * (at[1] - half) + 1;
  }
  if (placement.order.transposed) {
    std::swap(at[box.rank - 2U], at[box.rank - 1U]);
    std::swap(extent[box.rank - 2U], extent[box.rank - 1U]);
  }
  std::int64_t number = 0;
  for (std::size_t d = 0; d < box.rank; ++d) number = number * extent[d] + at[d];
  return number;
}

std::string LayerWords(const LoadPlan& plan, const Placement& placement, const std::string& tensor) {
  return "layer " + plan.layers()[plan.parameters()[placement.parameter].layer].path + ": " + Quote(tensor);
}

// Names a placement's tensor, and says where in all of it an element of the placement is.
struct SourceWords {
  std::string tensor;  // "layer a.qkv_proj: 'a.k_proj.weight'"
  std::string place;   // "row 35, column 7"
};

SourceWords WordsFor(const LoadPlan& plan, const Manifest& manifest, const Placement& placement, std::int64_t element) {
  const auto entry = manifest.entry(placement.tensor);
  // A tensor that is read in another shape has its elements in the same order.
  const std::int64_t index = Walk::Into(plan.SourceShape(manifest, placement.tensor), placement.source).At(element);
  return {LayerWords(plan, placement, entry.spec.name), PlaceIn(entry.spec.shape, index)};
}

std::string Shown(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%g", value);
  return text.data();
}

double LargestFinite(DType dtype) {
  if (dtype == DType::kF16) return conversions::F16::ToFloat(conversions::F16::kInfinity - 1);
  if (dtype == DType::kBF16) return conversions::BF16::ToFloat(conversions::BF16::kInfinity - 1);
  return std::numeric_limits<float>::max();
}

bool IsFiniteAs(DType from, const std::byte* element, DType to) {
  std::array<std::byte, 8> cast{};
  return from == to ? std::isfinite(ElementValue(from, element, 0)) : Cast(from, element, to, cast.data(), 1);
}

struct Element {
  std::int64_t index;
  double value;
};

// The first element of a view, which must have one, that is not finite as `to`. Slow.
Element FirstWrong(DType from, const RegionView& view, DType to) {
  const auto size = static_cast<std::size_t>(BitsPerElement(from)) / 8;
  const std::size_t of_row = view.row_bytes / size;
  for (std::size_t i = 0; i < of_row * view.rows; ++i) {
    const std::byte* const element = view.row(i / of_row) + i % of_row * size;
    if (!IsFiniteAs(from, element, to)) return {static_cast<std::int64_t>(i), ElementValue(from, element, 0)};
  }
  LAYERCAST_CHECK(false && "an element was wrong, and none is");
  std::abort();  // not reached
}

}  // namespace

std::string PlaceIn(const Shape& shape, std::int64_t element) {
  if (shape.size() < 2) return "element " + std::to_string(element);
  const std::int64_t cols = shape.back();
  const std::int64_t rows = shape[shape.size() - 2];
  const std::string in_matrix =
      "row " + std::to_string(element / cols % rows) + ", column " + std::to_string(element % cols);
  return shape.size() == 2 ? in_matrix : "matrix " + std::to_string(element / cols / rows) + ", " + in_matrix;
}

std::string BeyondWords(double value, std::string_view from, DType to) {
  return Shown(value) + " (" + std::string(from) + "), which is beyond " +
         Shown(std::copysign(LargestFinite(to), value)) + ", the largest finite " + std::string(Name(to));
}

std::string WrongValueWords(double value, std::string_view from, DType to, const std::string& place) {
  return std::isfinite(value) ? place + " holds " + BeyondWords(value, from, to)
                              : "expected finite values, got " + NonFiniteName(value) + " at " + place;
}

void ThrowWrongElement(const SourcePiece& piece, std::int64_t element, double value) {
  const std::int64_t before = static_cast<std::int64_t>(piece.piece.begin) * 8 / BitsPerElement(piece.dtype);
  const SourceWords words = WordsFor(piece.plan, piece.manifest, piece.placement, before + element);
  throw Error(ErrorCode::kCorrupt,
              words.tensor + ": " + WrongValueWords(value, Name(piece.dtype), piece.parameter.dtype, words.place));
}

void ThrowFirstWrongElement(const SourcePiece& piece, const RegionView& view) {
  const Element wrong = FirstWrong(piece.dtype, view, piece.parameter.dtype);
  ThrowWrongElement(piece, wrong.index, wrong.value);
}

void CheckWholeTensor(const LoadPlan& plan, std::uint32_t tensor, const NamedTensor& named, float amax) {
  std::int64_t held = 0;
  for (const std::uint32_t index : plan.PlacementsOf(tensor)) held += plan.placements()[index].source.num_elements();
  if (held >= NumElements(named.tensor.shape) || plan.FindRead(tensor) != nullptr) return;
  for (const std::uint32_t index : plan.PlacementsOf(tensor)) {
    const Placement& placement = plan.placements()[index];
    const DType to = plan.parameters()[placement.parameter].spec.dtype;
    if (std::isfinite(RoundTo(to, amax))) continue;
    const auto bytes = static_cast<std::size_t>(named.tensor.num_bytes());
    const Element wrong = FirstWrong(named.tensor.dtype, AsView({named.tensor.data, bytes}), to);
    throw Error(ErrorCode::kCorrupt, LayerWords(plan, placement, named.name) + ": " +
                                         WrongValueWords(wrong.value, Name(named.tensor.dtype), to,
                                                         PlaceIn(named.tensor.shape, wrong.index)));
  }
}

void ThrowWrongWeight(const PlacedMatrix& place, std::int64_t row, std::int64_t col, std::string_view problem) {
  const PlannedParameter& parameter = place.plan.parameters()[place.parameter];
  const Shape& shape = parameter.spec.shape;
  const std::int64_t cols = shape.empty() ? 1 : shape.back();
  const std::int64_t first_row = place.matrix == 0 ? 0 : place.matrix * MatrixStack::Of(shape).rows;
  for (const Placement& placement : place.plan.PlacementsInto(parameter)) {
    const std::optional<std::int64_t> number = NumberIn(placement, shape, (first_row + row) * cols + col);
    if (!number) continue;
    const SourceWords words = WordsFor(place.plan, place.manifest, placement, *number);
    throw Error(ErrorCode::kCorrupt, words.tensor + ": " + std::string(problem) + " at " + words.place);
  }
  throw Error(ErrorCode::kCorrupt, place.ToString() + ": " + std::string(problem) + " at row " + std::to_string(row) +
                                       ", column " + std::to_string(col));
}

}  // namespace layercast
