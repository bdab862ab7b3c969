#include "engine_side/reload/layout/amax_requests.h"

#include <algorithm>
#include <bit>
#include <map>
#include <string>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

KeptAxes Bit(std::size_t axis) { return static_cast<KeptAxes>(1U << axis); }

// The smallest set of axes that contains these and may be kept together (CheckKept).
KeptAxes Completed(KeptAxes wanted, std::size_t rank) {
  const unsigned last = wanted & Bit(rank - 1);
  const unsigned before = wanted - last;
  return static_cast<KeptAxes>(((1U << std::bit_width(before)) - 1U) | last);
}

ReadTensor::Part AsItIs(const Shape& shape) {
  ReadTensor::Part part{.within = Box::Whole(shape), .axes = {}};
  for (std::uint8_t axis = 0; axis < part.within.rank; ++axis) part.axes.push_back({axis});
  return part;
}

[[noreturn]] void RefuseEachElement(const LoadPlan& plan, const Manifest& manifest, const Placement& placement,
                                    const SourceMatrices& source) {
  const TensorSpec& spec = manifest.entry(placement.tensor).spec;
  const auto begin = source.part.extent.begin();
  std::string rows = source.rows.size() == 1 ? "axis" : "axes";
  for (const std::uint8_t axis : source.rows) rows += " " + std::to_string(axis);
  throw Error(ErrorCode::kUnsupported,
              plan.parameters()[placement.parameter].spec.name +
                  ": the recipe's scales follow from magnitudes of rows " + "over all ranks; of " + Quote(spec.name) +
                  " " + Describe(spec) + ", read as " + ToString(source.shape) + " in parts of " +
                  ToString(Shape(begin, begin + source.part.rank)) + ", rows lie along " + rows +
                  ": with its parts told apart these are all its elements; expected parts along an axis of their own "
                  "(reshape, split, squeeze)");
}

}  // namespace

SourceMatrices SourceMatrices::Of(const LoadPlan& plan, const Manifest& manifest, const Placement& placement) {
  const ReadTensor* read = plan.FindRead(placement.tensor);
  SourceMatrices source{.shape = plan.SourceShape(manifest, placement.tensor), .part = {}};
  const ReadTensor::Part part = read == nullptr ? AsItIs(source.shape) : read->PartOf(placement.source);
  source.part = part.within;
  const std::size_t axes = part.axes.size();
  source.rows = part.axes.at(axes - (placement.order.transposed != part.transposed ? 1U : 2U));
  const bool into_stack = placement.destination.rank == 3;
  if (axes == 3 && into_stack) source.stack = part.axes[0];
  // The matrix of an expert that comes alone is all of its tensor, unless the tensor holds other experts' matrices as
  // well.
  const bool one_of_many = into_stack && !source.stack && read != nullptr && read->parts.size() > 1;
  source.part_is_all = read == nullptr || (read->fills_one_parameter && !one_of_many);
  return source;
}

KeptAxes SourceMatrices::Needed(AmaxNeed need) const {
  if (need == AmaxNeed::kNone) return 0;
  unsigned needed = 0;
  for (const std::uint8_t axis : stack.value_or(std::vector<std::uint8_t>())) needed |= Bit(axis);
  for (const std::uint8_t axis : rows) needed |= need == AmaxNeed::kRows ? Bit(axis) : 0U;
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    const bool is_cut = part.extent[axis] != shape[axis];
    if (is_cut && (need == AmaxNeed::kRows || !part_is_all)) needed |= Bit(axis);
  }
  return Completed(static_cast<KeptAxes>(needed), shape.size());
}

Shape KeptOf(const Shape& shape, KeptAxes kept) {
  Shape of;
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if ((kept >> d & 1) != 0) of.push_back(shape[d]);
  }
  return of;
}

Box KeptOf(const Box& box, KeptAxes kept) {
  Box of;
  for (std::size_t d = 0; d < box.rank; ++d) {
    if ((kept >> d & 1) == 0) continue;
    of.begin[of.rank] = box.begin[d];
    of.extent[of.rank++] = box.extent[d];
  }
  return of;
}

std::vector<AmaxRequest> AmaxRequests(const LoadPlan& plan, const Manifest& manifest, const LayerRecipes& recipes) {
  std::map<std::uint32_t, AmaxRequest> requests;
  for (const Placement& placement : plan.placements()) {
    const PlannedParameter& parameter = plan.parameters()[placement.parameter];
    const AmaxNeed need = parameter.quantize ? recipes.Of(parameter).Needs(parameter.shard_axis) : AmaxNeed::kNone;
    if (need == AmaxNeed::kNone) continue;
    const SourceMatrices source = SourceMatrices::Of(plan, manifest, placement);
    const KeptAxes needed = source.Needed(need);
    if (needed == 0) continue;
    AmaxRequest& request = requests.try_emplace(placement.tensor, AmaxRequest{placement.tensor, 0}).first->second;
    request.kept = Completed(static_cast<KeptAxes>(request.kept | needed), source.shape.size());
    if (request.kept == Bit(source.shape.size()) - 1) RefuseEachElement(plan, manifest, placement, source);
    if (source.shape != manifest.entry(placement.tensor).spec.shape) request.read_as = source.shape;
  }
  std::vector<AmaxRequest> sorted;
  for (const auto& [tensor, request] : requests) sorted.push_back(request);
  return sorted;
}

}  // namespace layercast
