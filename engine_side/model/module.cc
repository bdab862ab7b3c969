#include "layercast/model/module.h"

#include <algorithm>
#include <utility>

#include "engine_side/model/fit.h"
#include "layercast/error.h"

namespace layercast {

Module::~Module() = default;

std::vector<PlacedPiece> Module::Place(std::string_view name, std::string_view /*shard_id*/,
                                       const TensorSpec& spec) const {
  const std::uint32_t index = ParameterIndex(name);
  const Parameter& parameter = parameters_[index];
  // A scalar and a tensor of one element are the same; both have a box.
  const bool scalars = spec.shape.size() <= 1 && parameter.spec.shape.size() <= 1 && NumElements(spec.shape) == 1 &&
                       NumElements(parameter.spec.shape) == 1;
  CheckFits(spec, parameter.spec.dtype, scalars ? spec.shape : parameter.spec.shape);
  return {{index, Box::Whole(spec.shape), Box::Whole(parameter.spec.shape), {}}};
}

std::vector<Box> Module::Padding(std::uint32_t /*parameter*/) const { return {}; }

Module& Module::AddChild(std::string name, std::unique_ptr<Module> child) {
  const auto index = static_cast<std::uint32_t>(children_.size());
  AddName(name, {.module = child.get(), .child = index});
  for (const ShardName& shard : child->shard_names()) {
    // First match wins: a name that is taken stays with whom it belongs to.
    routes_.try_emplace(std::string(shard.checkpoint_name),
                        Route{.module = child.get(), .child = index, .declared = true, .shard_id = shard.shard_id});
  }
  return *children_.emplace_back(std::move(name), std::move(child)).second;
}

Parameter& Module::AddParameter(Parameter parameter) {
  Box::Whole(parameter.spec.shape);  // throws on more dimensions than a box has
  parameter.spec.num_bytes();        // throws on a shape that has no size
  AddName(parameter.spec.name, {});
  return parameters_.emplace_back(std::move(parameter));
}

void Module::AddName(const std::string& name, Route route) {
  if (name.empty() || name.find('.') != std::string::npos) {
    throw Error(ErrorCode::kInvalidArgument, class_name_ + ": expected one path segment as a name, got '" + name + "'");
  }
  const auto [taken, added] = routes_.try_emplace(name, route);
  if (added) return;
  if (!taken->second.declared) {
    throw Error(ErrorCode::kInvalidArgument, class_name_ + " already has a part called '" + name + "'");
  }
  taken->second = route;
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
