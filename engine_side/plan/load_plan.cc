#include "engine_side/plan/load_plan.h"

#include <algorithm>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "engine_side/plan/coverage.h"
#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

std::string Join(std::string_view path, std::string_view name) {
  std::string joined;
  joined.reserve(path.size() + 1 + name.size());
  joined += path;
  if (!path.empty()) joined += '.';
  return joined += name;
}

}  // namespace

// Fills a plan in four steps: layers from the tree, placements from the manifest, their order, their coverage.
class LoadPlan::Builder {
 public:
  Builder(const Module& model, const Manifest& manifest, std::span<const std::string> partial)
      : model_(model), manifest_(manifest), partial_(partial.begin(), partial.end()) {}

  CheckedPlan Run() {
    plan_.layout_digest_ = manifest_.layout_digest();
    plan_.placements_.reserve(manifest_.entries().size());
    layer_of_.reserve(manifest_.entries().size());
    AddLayers(model_, {});
    touched_.resize(plan_.parameters_.size());
    for (std::uint32_t tensor = 0; tensor < manifest_.entries().size(); ++tensor) PlaceTensor(tensor);
    OrderPlacements();
    IndexTensors();
    for (std::size_t layer = 0; layer < plan_.layers_.size(); ++layer) CheckLayer(layer);
    CheckPartial();
    return {std::move(plan_), std::move(problems_)};
  }

  LoadPlan RunWithoutTensors() {
    AddLayers(model_, {});
    return std::move(plan_);
  }

 private:
  // Every module that has parameters, in the tree's order.
  void AddLayers(const Module& module, const std::string& path) {
    if (!module.parameters().empty()) {
      const auto index = static_cast<std::uint32_t>(plan_.layers_.size());
      layer_of_.emplace(&module, index);
      modules_.push_back(&module);
      PlannedLayer layer{path,
                         module.class_name(),
                         static_cast<std::uint32_t>(plan_.parameters_.size()),
                         static_cast<std::uint32_t>(module.parameters().size()),
                         0,
                         0};
      for (std::uint32_t i = 0; i < layer.num_parameters; ++i) {
        const Parameter& parameter = module.parameters()[i];
        plan_.parameters_.push_back({index,
                                     {Join(path, parameter.spec.name), parameter.spec.dtype, parameter.spec.shape},
                                     parameter.shard_axis,
                                     parameter.quantize,
                                     module.Padding(i)});
      }
      plan_.layers_.push_back(std::move(layer));
    }
    for (const auto& [name, child] : module.children()) AddLayers(*child, Join(path, name));
  }

  void PlaceTensor(std::uint32_t tensor) {
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
  bool IsFirstOf(const std::string& alias_of, std::uint32_t tensor) {
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

  void AddPlacements(std::uint32_t tensor, const Resolution& to) {
    const TensorSpec& spec = manifest_.entry(tensor).spec;
    const PlannedLayer& layer = plan_.layers_[LayerOf(to.owner)];
    bool cast = false;
    for (const PlacedPiece& piece : to.pieces) {
      const std::uint32_t parameter = layer.first_parameter + piece.parameter;
      const DType dtype = plan_.parameters_[parameter].spec.dtype;
      touched_[parameter] = true;
      cast = cast || dtype != spec.dtype;
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
  std::uint32_t LayerOf(const Module* owner) {
    if (owner != last_owner_) last_layer_ = layer_of_.at(owner);
    last_owner_ = owner;
    return last_layer_;
  }

  // By layer, then by destination. Parameters are numbered by layer, so one counting sort over them does most of it.
  void OrderPlacements() {
    std::vector<std::uint32_t> next(plan_.parameters_.size() + 1);
    for (const Placement& placement : plan_.placements_) ++next[placement.parameter + 1];
    for (std::size_t i = 1; i < next.size(); ++i) next[i] += next[i - 1];
    first_placement_ = next;
    std::vector<Placement> ordered(plan_.placements_.size());
    for (const Placement& placement : plan_.placements_) ordered[next[placement.parameter]++] = placement;
    plan_.placements_ = std::move(ordered);
    for (std::size_t i = 0; i < plan_.parameters_.size(); ++i) {
      std::ranges::stable_sort(PlacementsInto(i), {}, [](const Placement& p) { return p.destination.begin; });
    }
    for (PlannedLayer& layer : plan_.layers_) {
      layer.first_placement = first_placement_[layer.first_parameter];
      layer.num_placements = first_placement_[layer.first_parameter + layer.num_parameters] - layer.first_placement;
    }
  }

  void IndexTensors() {
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

  void CheckLayer(std::size_t layer) {
    const PlannedLayer& planned = plan_.layers_[layer];
    for (std::uint32_t i = 0; i < planned.num_parameters; ++i) {
      const std::uint32_t parameter = planned.first_parameter + i;
      if (touched_[parameter] || !partial_.contains(plan_.parameters_[parameter].spec.name)) {
        CheckParameter(*modules_[layer], parameter);
      }
    }
  }

  void CheckParameter(const Module& owner, std::uint32_t parameter) {
    const PlannedParameter& planned = plan_.parameters_[parameter];
    const std::span<const Placement> placements = PlacementsInto(parameter);
    boxes_.assign(planned.padding.begin(), planned.padding.end());
    for (const Placement& placement : placements) boxes_.push_back(placement.destination);
    const Coverage coverage = Cover(boxes_);
    if (touched_[parameter] && coverage.Tiles(planned.spec.shape)) return;
    const auto name = [&](std::size_t box) {
      return box < planned.padding.size()
                 ? std::string("padding")
                 : Quote(manifest_.entry(placements[box - planned.padding.size()].tensor).spec.name);
    };
    for (const auto& [a, b] : coverage.overlaps) {
      problems_.repeated.push_back(name(a) + " and " + name(b) + " both fill the same elements of " +
                                   Quote(planned.spec.name));
    }
    AddMissing(owner, planned, placements, coverage);
  }

  void AddMissing(const Module& owner, const PlannedParameter& planned, std::span<const Placement> placements,
                  const Coverage& coverage) {
    if (placements.empty() && manifest_.Find(planned.spec.name) >= 0) return;  // fused on disk, and does not fit
    const std::string_view suffix = owner.parameters()[ParameterOf(planned)].spec.name;
    const std::string& path = plan_.layers_[planned.layer].path;
    const std::string_view parent(path.data(), path.find('.') == std::string::npos ? 0 : path.rfind('.'));
    std::unordered_set<std::string_view> shards;
    for (const Placement& placement : placements) shards.insert(placement.shard_id);
    bool named = false;
    for (const ShardName& shard : owner.shard_names()) {
      if (!shards.insert(shard.shard_id).second) continue;
      AddMissing(Join(Join(parent, shard.checkpoint_name), suffix), {});
      named = true;
    }
    if (named || !coverage.overlaps.empty()) return;
    const std::int64_t elements = NumElements(planned.spec.shape);
    std::string part;
    if (!placements.empty()) {
      part = " (" + std::to_string(coverage.elements) + " of " + std::to_string(elements) + " elements come)";
    }
    AddMissing(planned.spec.name, part);
  }

  // A tensor that is there and does not fit is a misfit, not missing too.
  void AddMissing(const std::string& name, const std::string& part) {
    if (!part.empty() || manifest_.Find(name) < 0) problems_.missing.push_back(name + part);
  }

  void CheckPartial() {
    if (partial_.empty()) return;
    std::unordered_set<std::string_view> names;
    for (const PlannedParameter& parameter : plan_.parameters_) names.insert(parameter.spec.name);
    for (const std::string& name : partial_) {
      if (!names.contains(name)) problems_.unexpected.push_back("partial: no parameter is called " + Quote(name));
    }
  }

  std::size_t ParameterOf(const PlannedParameter& planned) const {
    return static_cast<std::size_t>(&planned - plan_.parameters_.data()) - plan_.layers_[planned.layer].first_parameter;
  }

  std::span<Placement> PlacementsInto(std::size_t parameter) {
    return std::span(plan_.placements_)
        .subspan(first_placement_[parameter], first_placement_[parameter + 1] - first_placement_[parameter]);
  }

  const Module& model_;
  const Manifest& manifest_;
  const std::unordered_set<std::string> partial_;
  LoadPlan plan_;
  PlanProblems problems_;
  std::unordered_map<const Module*, std::uint32_t> layer_of_;
  std::vector<const Module*> modules_;  // of each layer
  const Module* last_owner_ = nullptr;
  std::uint32_t last_layer_ = 0;
  std::vector<Box> boxes_;                      // scratch of CheckParameter
  std::vector<bool> touched_;                   // some tensor of the manifest is a part of this parameter
  std::vector<std::uint32_t> first_placement_;  // of each parameter; one more at the end
  std::unordered_map<std::string, std::uint32_t> standing_for_;  // tied tensors: owner's name -> who is placed for it
};

LoadPlan LoadPlan::WithoutTensors(const Module& model) { return Builder(model, Manifest(), {}).RunWithoutTensors(); }

CheckedPlan LoadPlan::Check(const Module& model, const Manifest& manifest, std::span<const std::string> partial) {
  return Builder(model, manifest, partial).Run();
}

LoadPlan LoadPlan::Build(const Module& model, const Manifest& manifest, std::span<const std::string> partial) {
  if (manifest.entries().empty()) {
    throw Error(ErrorCode::kInvalidArgument, "load plan of " + model.class_name() + ": the manifest holds no tensors");
  }
  CheckedPlan checked = Check(model, manifest, partial);
  if (checked.problems.empty()) return std::move(checked.plan);
  throw Error(ErrorCode::kInvalidArgument,
              "load plan of " + model.class_name() + ": the manifest does not fit: " + checked.problems.Summary());
}

std::span<const std::uint32_t> LoadPlan::PlacementsOf(std::uint32_t tensor) const {
  return std::span(tensor_placements_)
      .subspan(tensor_offsets_.at(tensor), tensor_offsets_.at(tensor + 1) - tensor_offsets_.at(tensor));
}

}  // namespace layercast
