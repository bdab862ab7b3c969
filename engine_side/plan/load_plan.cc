#include "engine_side/plan/load_plan.h"

#include <algorithm>
#include <utility>

#include "engine_side/plan/plan_builder.h"
#include "layercast/error.h"
#include "layercast/model/module.h"
#include "src/base/check.h"
#include "src/base/log.h"
#include "src/tensor/parts/coverage.h"

namespace layercast {

const ReadTensor::Part& ReadTensor::PartOf(const Box& source) const {
  const auto part = std::ranges::find_if(parts, [&](const Part& one) { return Overlap(one.within, source); });
  LAYERCAST_CHECK(part != parts.end());
  return *part;
}

LoadPlan LoadPlan::WithoutTensors(const Module& model) { return Builder(model, Manifest()).RunWithoutTensors(); }

LoadPlan LoadPlan::OfItsParameters(const Module& model, const Manifest& manifest) {
  return Builder(model, manifest).RunOfItsParameters();
}

LoadPlan LoadPlan::OfKernelTensors(const Module& model, const Manifest& manifest, std::span<const TensorSpec> tensors) {
  return Builder(model, manifest).RunOfKernelTensors(tensors);
}

CheckedPlan LoadPlan::Check(const Module& model, const Manifest& manifest, bool partial, HeldParts parts) {
  return Builder(model, manifest, std::move(parts)).Run(partial);
}

LoadPlan LoadPlan::Build(const Module& model, const Manifest& manifest, bool partial, HeldParts parts) {
  if (manifest.size() == 0) {
    throw Error(ErrorCode::kInvalidArgument, "load plan of " + model.class_name() + ": the manifest holds no tensors");
  }
  CheckedPlan checked = Check(model, manifest, partial, std::move(parts));
  for (const std::string& rule : checked.plan.unused_rules()) log::warn("weight rule '{}' touches no tensor", rule);
  if (checked.problems.empty()) return std::move(checked.plan);
  throw Error(ErrorCode::kInvalidArgument,
              "load plan of " + model.class_name() + ": the manifest does not fit:" + checked.problems.Summary());
}

std::span<const std::uint32_t> LoadPlan::PlacementsOf(std::uint32_t tensor) const {
  return std::span(tensor_placements_)
      .subspan(tensor_offsets_.at(tensor), tensor_offsets_.at(tensor + 1) - tensor_offsets_.at(tensor));
}

}  // namespace layercast
