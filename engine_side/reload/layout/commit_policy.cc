#include "layercast/commit_policy.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::pair<std::string_view, CommitPolicy> kPolicies[] = {
    {"staged", CommitPolicy::kStaged}, {"undo", CommitPolicy::kUndo}, {"in_place", CommitPolicy::kInPlace}};

}  // namespace

CommitPolicy CommitPolicyNamed(std::string_view name) {
  for (const auto& [known, policy] : kPolicies) {
    if (name == known) return policy;
  }
  throw Error(ErrorCode::kInvalidArgument,
              "commit policy: expected staged, undo or in_place, got '" + std::string(name) + "'");
}

std::string_view CommitPolicyName(CommitPolicy policy) {
  return std::ranges::find(kPolicies, policy, [](const auto& known) { return known.second; })->first;
}

std::vector<std::string> KnownCommitPolicies() {
  std::vector<std::string> names;
  for (const auto& [name, policy] : kPolicies) names.emplace_back(name);
  return names;
}

}  // namespace layercast
