#include "layercast/parallel.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/error.h"

namespace layercast {
namespace {

struct NamedPlacement {
  std::string_view name;
  ExpertPlacement placement;
};
constexpr std::array<NamedPlacement, 2> kPlacements = {
    {{"contiguous", ExpertPlacement::kContiguous}, {"round_robin", ExpertPlacement::kRoundRobin}}};

}  // namespace

ExpertPlacement ExpertPlacementNamed(std::string_view name) {
  const auto* const found = std::ranges::find(kPlacements, name, &NamedPlacement::name);
  if (found != kPlacements.end()) return found->placement;
  throw Error(ErrorCode::kInvalidArgument,
              "expert placement: expected contiguous or round_robin, got '" + std::string(name) + "'");
}

std::string_view ExpertPlacementName(ExpertPlacement placement) {
  return std::ranges::find(kPlacements, placement, &NamedPlacement::placement)->name;
}

std::vector<std::string> KnownExpertPlacements() {
  std::vector<std::string> names;
  for (const auto& [name, placement] : kPlacements) names.emplace_back(name);
  return names;
}

}  // namespace layercast
