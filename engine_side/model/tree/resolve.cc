// Module::FindModule and Module::Resolve: from a path to a module, and from a checkpoint's name to the layer that owns
// it.
#include <algorithm>
#include <utility>

#include "engine_side/model/naming/path.h"
#include "layercast/error.h"
#include "layercast/model/module.h"
#include "src/base/utf8.h"
#include "src/tensor/adapter_tensor_name.h"

namespace layercast {
namespace {

constexpr std::size_t kNamesInMessages = 20;

// Splits off the first segment: "a.b.c" -> {"a", "b.c"}.
std::pair<std::string_view, std::string_view> SplitFirst(std::string_view path) {
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) return {path, {}};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

bool EndsWithSegments(std::string_view path, std::string_view suffix) {
  if (!path.ends_with(suffix)) return false;
  return path.size() == suffix.size() || path[path.size() - suffix.size() - 1] == '.';
}

// A tensor's name for messages, with what a mapper made of it.
std::string Named(const TensorSpec& spec, const Resolution& resolution) {
  if (resolution.tree_name.empty()) return Quote(spec.name);
  return Quote(spec.name) + " (mapped to " + Quote(resolution.tree_name) + ")";
}

}  // namespace

const Module* Module::FindModule(std::string_view path) const {
  const Module* module = this;
  while (module != nullptr && !path.empty()) {
    const auto [head, tail] = SplitFirst(path);
    const Route* route = module->FindRoute(head);
    module = route == nullptr || route->declared ? nullptr : module->children_[route->child].second.get();
    path = tail;
  }
  return module;
}

struct Module::Walk {
  const Module* module;
  std::string path;           // path of `module` from the root
  std::string_view rest;      // what is left of the name
  std::string_view shard_id;  // declared by a route on the way
  const SkipRule* skipped_by = nullptr;
};

void Module::Follow(Walk& walk) const {
  while (walk.module->held_by().empty()) {
    const Module& module = *walk.module;
    const auto rules = module.skip_rules();
    const auto rule =
        std::ranges::find_if(rules, [&](const SkipRule& r) { return EndsWithSegments(walk.rest, r.suffix); });
    if (rule != rules.end()) {
      walk.skipped_by = &*rule;
      return;
    }
    const auto [head, tail] = SplitFirst(walk.rest);
    const Route* route = module.FindRoute(head);
    if (route == nullptr || tail.empty()) return;
    if (!walk.path.empty()) walk.path += '.';
    walk.path += route->declared ? std::string_view(module.children_[route->child].first) : head;
    walk.module = route->module;
    walk.rest = tail;
    if (route->declared) walk.shard_id = route->shard_id;
  }
}

Resolution Module::Resolve(const TensorSpec& spec) const {
  Resolution resolution;
  if (const auto of = AdapterTensorName::Of(spec.name)) {
    resolution.skip_rule = of->SkipRule();
    return resolution;
  }
  if (mapper_.Matches(spec.name)) {
    WeightsMapper::Mapping mapping = mapper_.Map(spec.name);
    if (mapping.dropped) {
      resolution.skip_rule = mapper_.rules()[mapping.applied.back()].reason;
      return resolution;
    }
    if (!mapping.applied.empty()) resolution.tree_name = std::move(mapping.name);
  }
  const std::string& name = resolution.tree_name.empty() ? spec.name : resolution.tree_name;
  Walk walk{this, {}, name, {}};
  walk.path.reserve(name.size());
  Follow(walk);
  if (walk.skipped_by != nullptr) {
    resolution.skip_rule = walk.skipped_by->rule;
    return resolution;
  }
  if (const std::string_view tied_to = walk.module->tied_to(); !tied_to.empty()) {
    resolution.alias_of = JoinPath(tied_to, walk.rest);
    const std::string_view rest = walk.rest;
    walk = Walk{this, {}, resolution.alias_of, {}};
    Follow(walk);
    if (walk.rest != rest || walk.path != tied_to) {
      throw Error(ErrorCode::kInvalidArgument, Named(spec, resolution) + " is tied to " + Quote(resolution.alias_of) +
                                                   ", which is not below " + class_name_);
    }
  }
  resolution.owner_path = std::move(walk.path);
  resolution.held_by = walk.module->held_by();
  if (!resolution.held_by.empty()) return resolution;
  PlaceInOwner(walk, spec, resolution);
  return resolution;
}

std::vector<SourceResolution> Module::ResolveSource(const TensorSpec& spec) const {
  std::vector<SourceResolution> resolved;
  for (SourceView& view : transforms_.Apply(spec)) {
    Resolution to = Resolve(view.spec);
    for (PlacedPiece& piece : to.pieces) piece = view.InSource(piece);
    resolved.push_back({std::move(view), std::move(to)});
  }
  for (const SourceResolution& part : resolved) {
    if (resolved.size() == 1 || part.to.alias_of.empty()) continue;
    throw Error(ErrorCode::kUnsupported, Quote(part.view.spec.name) + ", a part of " + Quote(spec.name) +
                                             ", is tied to " + Quote(part.to.alias_of) +
                                             ": expected a tensor of its own");
  }
  return resolved;
}

void Module::PlaceInOwner(const Walk& walk, const TensorSpec& spec, Resolution& resolution) const {
  resolution.owner = walk.module;
  const std::string& path = resolution.owner_path;
  try {
    resolution.pieces = walk.module->Place(walk.rest, walk.shard_id, spec);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kNotFound) {
      throw Error(error.code(),
                  "layer " + (path.empty() ? class_name_ : path) + ": " + Named(spec, resolution) + " " + error.what());
    }
    const auto [head, tail] = SplitFirst(walk.rest);
    if (!tail.empty() && walk.module->HasParameter(head)) {
      throw Error(ErrorCode::kNotFound, "Attempted to load nested weight " + Named(spec, resolution) +
                                            " into a single parameter " + Quote(JoinPath(path, head)));
    }
    std::string names;
    const std::vector<std::string> available = walk.module->NamesBelow();
    for (std::size_t i = 0; i < std::min(available.size(), kNamesInMessages); ++i) {
      names += (i == 0 ? "" : ", ") + available[i];
    }
    if (available.size() > kNamesInMessages) {
      names += " and " + std::to_string(available.size() - kNamesInMessages) + " more";
    }
    throw Error(ErrorCode::kNotFound, "There is no module or parameter named " + Named(spec, resolution) + " in " +
                                          class_name_ + ". The available parameters belonging to " + path + " (" +
                                          walk.module->class_name_ + ") are: {" + names + "}");
  }
}

std::vector<std::string> Module::NamesBelow() const {
  std::vector<std::string> names;
  for (const Parameter& parameter : parameters_) names.push_back(parameter.spec.name);
  for (const auto& [name, child] : children_) {
    if (names.size() > kNamesInMessages) break;
    for (const std::string& below : child->NamesBelow()) names.push_back(JoinPath(name, below));
  }
  return names;
}

}  // namespace layercast
