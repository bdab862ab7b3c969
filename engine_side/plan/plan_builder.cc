#include "engine_side/plan/plan_builder.h"

#include <algorithm>
#include <utility>

#include "engine_side/model/path.h"
#include "engine_side/plan/completeness.h"
#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {

CheckedPlan LoadPlan::Builder::Run(std::span<const std::string> partial) {
  plan_.layout_digest_ = manifest_.layout_digest();
  plan_.placements_.reserve(manifest_.entries().size());
  layer_of_.reserve(manifest_.entries().size());
  AddLayers(model_, {});
  touched_.resize(plan_.parameters_.size());
  for (std::uint32_t tensor = 0; tensor < manifest_.entries().size(); ++tensor) PlaceTensor(tensor);
  OrderPlacements();
  IndexTensors();
  CheckCompleteness(plan_, {manifest_, owners_, touched_, partial}, problems_);
  return {std::move(plan_), std::move(problems_)};
}

LoadPlan LoadPlan::Builder::RunWithoutTensors() {
  AddLayers(model_, {});
  return std::move(plan_);
}

// Every module that has parameters, in the tree's order.
void LoadPlan::Builder::AddLayers(const Module& module, const std::string& path) {
  if (!module.parameters().empty()) AddLayer(module, path);
  for (const auto& [name, child] : module.children()) AddLayers(*child, JoinPath(path, name));
}

void LoadPlan::Builder::AddLayer(const Module& module, const std::string& path) {
  const auto index = static_cast<std::uint32_t>(plan_.layers_.size());
  layer_of_.emplace(&module, index);
  owners_.push_back(&module);
  const auto num_parameters = static_cast<std::uint32_t>(module.parameters().size());
  plan_.layers_.push_back(
      {path, module.class_name(), static_cast<std::uint32_t>(plan_.parameters_.size()), num_parameters, 0, 0});
  for (std::uint32_t i = 0; i < num_parameters; ++i) {
    const Parameter& parameter = module.parameters()[i];
    plan_.parameters_.push_back({index,
                                 {JoinPath(path, parameter.spec.name), parameter.spec.dtype, parameter.spec.shape},
                                 parameter.shard_axis,
                                 parameter.quantize,
                                 module.Padding(i)});
  }
}

void LoadPlan::Builder::PlaceTensor(std::uint32_t tensor) {
  const TensorSpec& spec = manifest_.entry(tensor).spec;
  Resolution to;
  try {
    to = model_.Resolve(spec);
  } catch (const Error& error) {
    (error.code() == ErrorCode::kNotFound ? problems_.unexpected : problems_.misfits).push_back(error.what());
    return;
  }
  if (to.owner == nullptr) {
    plan_.skipped_.push_back({tensor, std::move(to.skip_rule)});
  } else if (to.alias_of.empty() || IsFirstOf(to.alias_of, tensor)) {
    AddPlacements(tensor, to);
  }
}

// A tied tensor stands for its owner where the owner itself is not there.
bool LoadPlan::Builder::IsFirstOf(const std::string& alias_of, std::uint32_t tensor) {
  const std::int64_t owner = manifest_.Find(alias_of);
  const auto [entry, first] =
      standing_for_.try_emplace(alias_of, owner < 0 ? tensor : static_cast<std::uint32_t>(owner));
  if (first && owner < 0) return true;
  const TensorSpec& expected = manifest_.entry(entry->second).spec;
  const TensorSpec& spec = manifest_.entry(tensor).spec;
  if (spec.dtype != expected.dtype) {
    problems_.misfits.push_back(Quote(spec.name) + " is tied to " + Quote(expected.name) + ": expected " +
                                Describe(expected) + ", got " + Describe(spec));
  }
  plan_.aliases_.push_back({tensor, entry->second});
  return false;
}

void LoadPlan::Builder::AddPlacements(std::uint32_t tensor, const Resolution& to) {
  const TensorSpec& spec = manifest_.entry(tensor).spec;
  const PlannedLayer& layer = plan_.layers_[LayerOf(to.owner)];
  bool cast = false;
  for (const PlacedPiece& piece : to.pieces) {
    const std::uint32_t parameter = layer.first_parameter + piece.parameter;
    touched_[parameter] = true;
    cast = cast || plan_.parameters_[parameter].spec.dtype != spec.dtype;
    const std::int64_t elements = piece.source.num_elements();
    if (elements == 0) continue;
    if (BitsPerElement(spec.dtype) % 8 != 0 && elements != spec.num_elements()) {
      problems_.misfits.push_back("layer " + layer.path + ": " + Quote(spec.name) + " expected whole, because " +
                                  std::string(Name(spec.dtype)) + " elements share bytes; got a part of it");
    }
    plan_.placed_bytes_ += static_cast<std::uint64_t>(elements * BitsPerElement(spec.dtype) / 8);
    plan_.placements_.push_back({tensor, parameter, piece.source, piece.destination, piece.shard_id});
  }
  if (cast) plan_.cast_tensors_.push_back(tensor);
}

// Checkpoints mostly hold a layer's tensors together.
std::uint32_t LoadPlan::Builder::LayerOf(const Module* owner) {
  if (owner != last_owner_) last_layer_ = layer_of_.at(owner);
  last_owner_ = owner;
  return last_layer_;
}

// By layer, then by destination. Parameters are numbered by layer, so one counting sort over them does most of it.
void LoadPlan::Builder::OrderPlacements() {
  for (const Placement& placement : plan_.placements_) ++plan_.parameters_[placement.parameter].num_placements;
  std::vector<std::uint32_t> next;
  std::uint32_t first = 0;
  for (PlannedParameter& parameter : plan_.parameters_) {
    parameter.first_placement = first;
    next.push_back(first);
    first += parameter.num_placements;
  }
  std::vector<Placement> ordered(plan_.placements_.size());
  for (const Placement& placement : plan_.placements_) ordered[next[placement.parameter]++] = placement;
  plan_.placements_ = std::move(ordered);
  for (const PlannedParameter& parameter : plan_.parameters_) {
    const auto into = std::span(plan_.placements_).subspan(parameter.first_placement, parameter.num_placements);
    std::ranges::stable_sort(into, {}, [](const Placement& p) { return p.destination.begin; });
  }
  for (PlannedLayer& layer : plan_.layers_) {
    layer.first_placement = plan_.parameters_[layer.first_parameter].first_placement;
    for (std::uint32_t i = 0; i < layer.num_parameters; ++i) {
      layer.num_placements += plan_.parameters_[layer.first_parameter + i].num_placements;
    }
  }
}

void LoadPlan::Builder::IndexTensors() {
  std::vector<std::uint32_t>& offsets = plan_.tensor_offsets_;
  offsets.assign(manifest_.entries().size() + 1, 0);
  for (const Placement& placement : plan_.placements_) ++offsets[placement.tensor + 1];
  for (std::size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];
  std::vector<std::uint32_t> next = offsets;
  plan_.tensor_placements_.resize(plan_.placements_.size());
  for (std::uint32_t i = 0; i < plan_.placements_.size(); ++i) {
    plan_.tensor_placements_[next[plan_.placements_[i].tensor]++] = i;
  }
}

}  // namespace layercast
