// The table of commit policies, from which all follows that others ask of a policy.
#include "layercast/commit_policy.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/reload/commit/committer.h"
#include "engine_side/reload/commit/old_bytes.h"
#include "layercast/error.h"

namespace layercast {

// Each is in the file of this folder that is named after it.
using MakePolicy = std::unique_ptr<Committer>(const CommitParts& parts);
MakePolicy MakeStagedCommitter;

namespace {

struct PolicyRow {
  CommitPolicy policy;
  std::string_view name;
  bool writes_layers;
  MakePolicy* make;
};

// A new policy is a row here, with the name of its function above, and an enumerator.
constexpr PolicyRow kPolicies[] = {
    {CommitPolicy::kStaged, "staged", false, MakeStagedCommitter},
    {CommitPolicy::kUndo, "undo", true,
     [](const CommitParts& parts) { return MakeLayerwiseCommitter(parts, MakeUndoLog(parts)); }},
    {CommitPolicy::kInPlace, "in_place", true,
     [](const CommitParts& parts) { return MakeLayerwiseCommitter(parts, MakeNoOldBytes(parts)); }},
};

const PolicyRow& RowOf(CommitPolicy policy) {
  const auto* const found = std::ranges::find(kPolicies, policy, &PolicyRow::policy);
  if (found == std::end(kPolicies)) throw Error(ErrorCode::kInvalidArgument, "a commit policy of no known kind");
  return *found;
}

// "a, b or c".
std::string AllNames() {
  std::string names;
  for (const PolicyRow& row : kPolicies) {
    if (&row != kPolicies) names += &row == std::end(kPolicies) - 1 ? " or " : ", ";
    names += row.name;
  }
  return names;
}

}  // namespace

CommitPolicy CommitPolicyNamed(std::string_view name) {
  const auto* const found = std::ranges::find(kPolicies, name, &PolicyRow::name);
  if (found != std::end(kPolicies)) return found->policy;
  throw Error(ErrorCode::kInvalidArgument,
              "commit policy: expected " + AllNames() + ", got '" + std::string(name) + "'");
}

std::string_view CommitPolicyName(CommitPolicy policy) { return RowOf(policy).name; }

std::vector<std::string> KnownCommitPolicies() {
  std::vector<std::string> names;
  for (const PolicyRow& row : kPolicies) names.emplace_back(row.name);
  return names;
}

bool WritesLayers(CommitPolicy policy) { return RowOf(policy).writes_layers; }

std::unique_ptr<Committer> MakeCommitter(CommitPolicy policy, const CommitParts& parts) {
  return RowOf(policy).make(parts);
}

}  // namespace layercast
