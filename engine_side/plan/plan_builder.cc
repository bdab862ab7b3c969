#include "engine_side/plan/plan_builder.h"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include "engine_side/model/naming/path.h"
#include "engine_side/plan/completeness.h"
#include "engine_side/plan/cut_piece.h"
#include "engine_side/plan/tree_names.h"
#include "engine_side/plan/unused_rules.h"
#include "layercast/error.h"
#include "src/base/check.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

constexpr std::size_t kNeighbours = 16;  // the layers of a decoder block, and a few more

// Whether the tensor that these are all parts of goes into a single parameter.
bool FillOneParameter(std::span<const SourceResolution> parts) {
  std::set<std::pair<const Module*, std::uint32_t>> parameters;
  for (const SourceResolution& part : parts) {
    if (part.to.owner == nullptr) return false;
    for (const PlacedPiece& piece : part.to.pieces) parameters.emplace(part.to.owner, piece.parameter);
  }
  return parameters.size() == 1;
}

}  // namespace

CheckedPlan LoadPlan::Builder::Run(bool partial) {
  plan_.layout_digest_ = manifest_.layout_digest();
  // A model has at most about as many layers, parameters and placements as its checkpoint has tensors.
  plan_.placements_.reserve(manifest_.size());
  plan_.parameters_.reserve(manifest_.size());
  plan_.layers_.reserve(manifest_.size());
  std::string path;
  AddLayers(model_, path);
  touched_.resize(plan_.parameters_.size());
  for (std::uint32_t tensor = 0; tensor < manifest_.size(); ++tensor) PlaceTensor(tensor);
  for (const auto& [tensor, to] : tied_) {
    OrRefuse(tensor, [&] { PlaceTied(tensor, to); });
  }
  PlaceStandIns();
  if (partial) KeepUntouchedLayers();
  OrderPlacements();
  IndexTensors();
  // A group's first layer precedes its other layers, so that its `group` is final by the time they read it.
  for (PlannedLayer& layer : plan_.layers_) layer.group = plan_.layers_[layer.group].group;
  CheckCompleteness(plan_, {manifest_, owners_, touched_, refused_}, problems_);
  if (!partial) plan_.unused_rules_ = UnusedRules(model_, manifest_);  // most rules touch nothing of a partial version
  return {std::move(plan_), std::move(problems_)};
}

LoadPlan LoadPlan::Builder::RunWithoutTensors() {
  std::string path;
  AddLayers(model_, path);
  return std::move(plan_);
}

LoadPlan LoadPlan::Builder::RunOfItsParameters() {
  std::string path;
  AddLayers(model_, path);
  return WithWholeTensors();
}

LoadPlan LoadPlan::Builder::RunOfKernelTensors(std::span<const TensorSpec> tensors) {
  for (std::uint32_t i = 0; i < tensors.size(); ++i) {
    plan_.layers_.push_back({.path = std::string(ParentPath(tensors[i].name)),
                             .class_name = {},
                             .first_parameter = i,
                             .num_parameters = 1,
                             .group = i});
    plan_.parameters_.push_back({.layer = i, .spec = tensors[i], .padding = {}});
  }
  return WithWholeTensors();
}

// The plan, whose parameters are known, with a placement that fills each from the tensor of its name.
LoadPlan LoadPlan::Builder::WithWholeTensors() {
  plan_.layout_digest_ = manifest_.layout_digest();
  for (std::uint32_t i = 0; i < plan_.parameters_.size(); ++i) {
    const TensorSpec& spec = plan_.parameters_[i].spec;
    const auto tensor = static_cast<std::uint32_t>(manifest_.Find(spec.name));
    LAYERCAST_CHECK(spec == manifest_.entry(tensor).spec);
    if (spec.num_elements() == 0) continue;
    const Box whole = Box::Whole(spec.shape);
    plan_.placed_bytes_ += static_cast<std::uint64_t>(spec.num_bytes());
    plan_.placements_.push_back({tensor, i, whole, whole, {}});
  }
  OrderPlacements();
  IndexTensors();
  return std::move(plan_);
}

// Adds every module that has parameters, in the tree's order. `path` is the module's path; the call extends it while it
// runs and leaves it as it was.
void LoadPlan::Builder::AddLayers(const Module& module, std::string& path) {
  if (!module.parameters().empty()) AddLayer(module, path);
  const std::size_t length = path.size();
  for (const auto& [name, child] : module.children()) {
    if (length != 0) path += '.';
    path += name;
    AddLayers(*child, path);
    path.resize(length);
  }
}

void LoadPlan::Builder::AddLayer(const Module& module, const std::string& path) {
  const auto index = static_cast<std::uint32_t>(plan_.layers_.size());
  owners_.push_back(&module);
  const auto num_parameters = static_cast<std::uint32_t>(module.parameters().size());
  plan_.layers_.push_back({.path = path,
                           .class_name = module.class_name(),
                           .first_parameter = static_cast<std::uint32_t>(plan_.parameters_.size()),
                           .num_parameters = num_parameters,
                           .derived = module.derived(),
                           .group = index});
  for (std::uint32_t i = 0; i < num_parameters; ++i) {
    const Parameter& parameter = module.parameters()[i];
    plan_.parameters_.push_back({index,
                                 {JoinPath(path, parameter.spec.name), parameter.spec.dtype, parameter.spec.shape},
                                 parameter.shard_axis,
                                 parameter.quantize,
                                 module.Padding(i),
                                 parameter.sign,
                                 parameter.fallback,
                                 parameter.form});
  }
}

void LoadPlan::Builder::PlaceTensor(std::uint32_t tensor) {
  const TensorSpec& spec = manifest_.entry(tensor).spec;
  OrRefuse(tensor, [&] {
    if (model_.transforms().Matches(spec.name)) {
      PlaceParts(tensor, model_.ResolveSource(spec));
    } else {
      PlaceResolved(tensor, model_.Resolve(spec));
    }
  });
}

// What `place` throws becomes one of the plan's problems.
template <class Place>
void LoadPlan::Builder::OrRefuse(std::uint32_t tensor, const Place& place) {
  try {
    place();
  } catch (const Error& error) {
    AddRefused(manifest_.entry(tensor).spec, error);
  }
}

void LoadPlan::Builder::AddRefused(const TensorSpec& spec, const Error& error) {
  if (error.code() == ErrorCode::kNotFound) {
    problems_.unexpected.push_back({spec.name, error.what()});
  } else {
    problems_.misfits.emplace_back(error.what());
  }
  for (WeightsMapper::Mapping& mapping : MappingsOf(model_, spec)) refused_.insert(std::move(mapping.name));
}

void LoadPlan::Builder::PlaceParts(std::uint32_t tensor, std::vector<SourceResolution> parts) {
  NoteRead(tensor, parts);
  if (parts.size() == 1) {
    auto& [view, to] = parts.front();
    if (to.tree_name.empty() && view.spec.name != manifest_.entry(tensor).spec.name) to.tree_name = view.spec.name;
    return PlaceResolved(tensor, std::move(to));
  }
  std::optional<std::uint32_t> first;  // layer
  for (const SourceResolution& part : parts) {
    if (part.to.owner == nullptr) continue;
    AddPlacements(tensor, part.to);
    const std::uint32_t layer = LayerOf(part.to.owner);
    if (!first) first = layer;
    JoinGroups(*first, layer);
  }
  if (first) return;
  // No part is this rank's. The tensor counts as held by other ranks if they hold any part of it.
  const auto held = std::ranges::find_if(parts, [](const auto& part) { return !part.to.held_by.empty(); });
  PlaceResolved(tensor, std::move((held == parts.end() ? parts.front() : *held).to));
}

void LoadPlan::Builder::NoteRead(std::uint32_t tensor, std::span<const SourceResolution> parts) {
  const SourceView& view = parts.front().view;
  const Shape& shape = manifest_.entry(tensor).spec.shape;
  if (parts.size() == 1 && view.read_as == shape && view.axes.size() == shape.size()) return;
  ReadTensor read{view.read_as, {}, FillOneParameter(parts)};
  for (const SourceResolution& part : parts) {
    read.parts.push_back({part.view.within, part.view.axes, part.view.transposed});
  }
  plan_.read_.emplace(tensor, std::move(read));
}

std::uint32_t LoadPlan::Builder::GroupOf(std::uint32_t layer) {
  while (plan_.layers_[layer].group != layer) layer = plan_.layers_[layer].group;
  return layer;
}

void LoadPlan::Builder::JoinGroups(std::uint32_t one, std::uint32_t other) {
  one = GroupOf(one);
  other = GroupOf(other);
  plan_.layers_[std::max(one, other)].group = std::min(one, other);
}

void LoadPlan::Builder::PlaceResolved(std::uint32_t tensor, Resolution to) {
  if (!to.held_by.empty()) {
    plan_.elsewhere_.push_back({tensor, to.held_by});
  } else if (to.owner == nullptr) {
    plan_.skipped_.push_back({tensor, std::move(to.skip_rule)});
  } else if (!to.alias_of.empty()) {
    tied_.emplace_back(tensor, std::move(to));
  } else {
    AddPlacements(tensor, to);
    if (!to.tree_name.empty()) renamed_.emplace(std::move(to.tree_name), tensor);
  }
}

void LoadPlan::Builder::AddPlacements(std::uint32_t tensor, const Resolution& to) {
  const TensorSpec& spec = manifest_.entry(tensor).spec;
  const PlannedLayer& layer = plan_.layers_[LayerOf(to.owner)];
  bool cast = false;
  for (const PlacedPiece& piece : to.pieces) {
    const std::uint32_t parameter = layer.first_parameter + piece.parameter;
    touched_[parameter] = true;
    cast = cast || plan_.parameters_[parameter].spec.dtype != spec.dtype;
    if (piece.source.num_elements() == 0) continue;
    if (plan_.CutsOf(tensor).empty()) {
      AddPlacement(tensor, layer, piece, 0);
    } else {
      AddCut(tensor, layer, piece);
    }
  }
  if (cast && (plan_.cast_tensors_.empty() || plan_.cast_tensors_.back() != tensor))
    plan_.cast_tensors_.push_back(tensor);
}

void LoadPlan::Builder::AddPlacement(std::uint32_t tensor, const PlannedLayer& layer, const PlacedPiece& piece,
                                     std::uint32_t part) {
  const TensorSpec& spec = manifest_.entry(tensor).spec;
  const std::int64_t elements = piece.source.num_elements();
  const bool as_it_is = elements == spec.num_elements() && piece.order.is_same();
  if (BitsPerElement(spec.dtype) % 8 != 0 && !as_it_is) {
    problems_.misfits.push_back("layer " + layer.path + ": " + Quote(spec.name) +
                                " expected whole, in the order of its elements, because " +
                                std::string(Name(spec.dtype)) + " elements share bytes; got " +
                                (piece.order.is_same() ? "a part of it" : "another order of them"));
  }
  plan_.placed_bytes_ += static_cast<std::uint64_t>(elements * BitsPerElement(spec.dtype) / 8);
  plan_.placements_.push_back({tensor, layer.first_parameter + piece.parameter, piece.source, piece.destination,
                               piece.shard_id, piece.order, part, piece.reciprocal, piece.shared});
}

// Cuts the piece at the borders of the tensor's parts, so that each placement lies in what one publisher holds.
void LoadPlan::Builder::AddCut(std::uint32_t tensor, const PlannedLayer& layer, const PlacedPiece& piece) {
  const TensorSpec& spec = manifest_.entry(tensor).spec;
  const std::string subject = "layer " + layer.path + ": " + Quote(spec.name) + " (" + Describe(spec) + "): ";
  if (plan_.SourceShape(manifest_, tensor) != spec.shape) {
    throw Error(ErrorCode::kUnsupported, subject + "it is read as " + ToString(plan_.SourceShape(manifest_, tensor)) +
                                             ", and cannot come in parts: expected it whole");
  }
  const std::span<const HeldPart> parts = plan_.CutsOf(tensor);
  for (std::uint32_t part = 0; part < parts.size(); ++part) {
    try {
      if (const auto cut = CutPiece(piece, parts[part].box)) AddPlacement(tensor, layer, *cut, part);
    } catch (const Error& error) {
      throw Error(error.code(), subject + error.what());
    }
  }
}

// The layer of a module. Checkpoints mostly hold a decoder block's tensors together, so it looks among the last layer's
// neighbours first, which is far cheaper than a hash table.
std::uint32_t LoadPlan::Builder::LayerOf(const Module* owner) {
  const std::size_t begin = last_layer_ - std::min(last_layer_, kNeighbours);
  const std::size_t end = std::min(last_layer_ + kNeighbours, owners_.size());
  const auto near = std::span(owners_).subspan(begin, end - begin);
  const auto found = std::ranges::find(near, owner);
  if (found != near.end()) {
    last_layer_ = begin + static_cast<std::size_t>(found - near.begin());
  } else {
    for (std::uint32_t i = static_cast<std::uint32_t>(layer_of_.size()); i < owners_.size(); ++i) {
      layer_of_.emplace(owners_[i], i);
    }
    last_layer_ = layer_of_.at(owner);
  }
  return static_cast<std::uint32_t>(last_layer_);
}

// Marks the layers that no tensor touches as kept. All ranks keep the same layers, because a tensor touches a layer
// even if its part of it is another rank's.
void LoadPlan::Builder::KeepUntouchedLayers() {
  plan_.partial_ = true;
  for (PlannedLayer& layer : plan_.layers_) {
    const auto first = touched_.begin() + layer.first_parameter;
    layer.kept = std::find(first, first + layer.num_parameters, true) == first + layer.num_parameters;
  }
}

}  // namespace layercast
