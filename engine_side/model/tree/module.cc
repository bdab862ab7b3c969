#include "layercast/model/module.h"

#include <algorithm>
#include <utility>

#include "engine_side/model/naming/path.h"
#include "engine_side/model/tree/derived_form.h"
#include "engine_side/model/tree/fit.h"
#include "layercast/error.h"

namespace layercast {

namespace {
constexpr std::size_t kFewRoutes = 12;  // up to this many, a linear search is faster than a hash table
}

Module::~Module() = default;

std::vector<PlacedPiece> Module::Place(std::string_view name, std::string_view /*shard_id*/,
                                       const TensorSpec& spec) const {
  const std::uint32_t index = ParameterIndex(name);
  const Parameter& parameter = parameters_[index];
  // A scalar and a tensor of one element may stand for each other.
  const bool scalars = spec.shape.size() <= 1 && parameter.spec.shape.size() <= 1 && NumElements(spec.shape) == 1 &&
                       NumElements(parameter.spec.shape) == 1;
  CheckFits(spec, parameter.spec.dtype, scalars ? spec.shape : parameter.spec.shape);
  return {{index, Box::Whole(spec.shape), Box::Whole(parameter.spec.shape), {}}};
}

std::vector<Box> Module::Padding(std::uint32_t /*parameter*/) const { return {}; }

const Module* Module::FindChild(std::string_view name) const {
  const Route* route = FindRoute(name);
  return route == nullptr || route->declared ? nullptr : route->module;
}

std::vector<ExpectedTensor> Module::Expected(std::uint32_t parameter, std::string_view path) const {
  const TensorSpec& spec = parameters_.at(parameter).spec;
  return {{JoinPath(path, spec.name), Box::Whole(spec.shape)}};
}

Module& Module::AddChild(std::string name, std::unique_ptr<Module> child) {
  CheckName(name);
  const auto index = static_cast<std::uint32_t>(children_.size());
  AddRoute({name, child.get(), index, false, {}});
  for (const ShardName& shard : child->shard_names()) {
    AddRoute({std::string(shard.checkpoint_name), child.get(), index, true, shard.shard_id});
  }
  return *children_.emplace_back(std::move(name), std::move(child)).second;
}

Parameter& Module::InsertParameter(std::size_t index, Parameter parameter) {
  Box::Whole(parameter.spec.shape);  // throws on more dimensions than a box has
  parameter.spec.num_bytes();        // throws on a shape that has no size
  CheckName(parameter.spec.name);
  return *parameters_.insert(parameters_.begin() + static_cast<std::ptrdiff_t>(index), std::move(parameter));
}

void Module::AddDerived(DerivedTensor derived) {
  derived.spec.num_bytes();  // throws on a shape that has no size
  CheckName(derived.spec.name);
  for (const TensorSpec& source : derived.sources) {
    const TensorSpec& parameter = parameters_[ParameterIndex(source.name)].spec;
    if (parameter == source) continue;
    throw Error(ErrorCode::kInvalidArgument, class_name_ + ": '" + derived.spec.name + "' derives from '" +
                                                 source.name + "': expected " + Describe(parameter) + ", got " +
                                                 Describe(source));
  }
  CheckForm(derived, class_name_);
  derived_.push_back(std::move(derived));
}

void Module::CheckName(const std::string& name) const {
  if (name.empty() || name.find('.') != std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument, class_name_ + ": expected one path segment as a name, got '" + name + "'");
  }
  const Route* route = FindRoute(name);
  const bool is_derived = std::ranges::any_of(derived_, [&](const DerivedTensor& d) { return d.spec.name == name; });
  if ((route != nullptr && !route->declared) || HasParameter(name) || is_derived) {
    throw Error(ErrorCode::kInvalidArgument, class_name_ + " already has a part called '" + name + "'");
  }
}

// The first route of a name wins, except that a child's own name takes precedence over names that other children
// declare.
void Module::AddRoute(Route route) {
  if (const Route* taken = FindRoute(route.name)) {
    if (!route.declared) routes_[static_cast<std::size_t>(taken - routes_.data())] = std::move(route);
    return;
  }
  routes_.push_back(std::move(route));
  if (routes_.size() <= kFewRoutes) return;
  for (auto i = static_cast<std::uint32_t>(route_of_.size()); i < routes_.size(); ++i) {
    route_of_.emplace(routes_[i].name, i);
  }
}

const Module::Route* Module::FindRoute(std::string_view name) const {
  if (routes_.size() > kFewRoutes) {
    const auto found = route_of_.find(name);
    return found == route_of_.end() ? nullptr : &routes_[found->second];
  }
  const auto found = std::ranges::find_if(routes_, [&](const Route& route) { return route.name == name; });
  return found == routes_.end() ? nullptr : &*found;
}

bool Module::HasParameter(std::string_view name) const {
  return std::ranges::any_of(parameters_, [&](const Parameter& parameter) { return parameter.spec.name == name; });
}

std::uint32_t Module::ParameterIndex(std::string_view name) const {
  const auto found =
      std::ranges::find(parameters_, name, [](const Parameter& p) { return std::string_view(p.spec.name); });
  if (found == parameters_.end()) {
    throw Error(ErrorCode::kNotFound, class_name_ + " has no parameter '" + std::string(name) + "'");
  }
  return static_cast<std::uint32_t>(found - parameters_.begin());
}

}  // namespace layercast
