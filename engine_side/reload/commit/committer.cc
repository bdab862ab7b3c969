#include "engine_side/reload/commit/committer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine_side/reload/commit/old_bytes.h"
#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::pair<std::string_view, CommitPolicy> kPolicies[] = {
    {"staged", CommitPolicy::kStaged}, {"undo", CommitPolicy::kUndo}, {"in_place", CommitPolicy::kInPlace}};

// The committer of a policy that writes layer by layer.
std::unique_ptr<Committer> Layerwise(const CommitParts& parts, std::unique_ptr<OldBytes> old) {
  if (parts.device != nullptr) return MakeDeviceLayerwiseCommitter(parts, std::move(old));
  return MakeLayerwiseCommitter(parts, std::move(old));
}

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

std::unique_ptr<Committer> MakeCommitter(CommitPolicy policy, const CommitParts& parts) {
  const bool on_device = parts.device != nullptr;
  switch (policy) {
    case CommitPolicy::kStaged: return on_device ? MakeDeviceStagedCommitter(parts) : MakeStagedCommitter(parts);
    case CommitPolicy::kUndo: return Layerwise(parts, on_device ? MakeDeviceUndoLog(parts) : MakeUndoLog(parts));
    case CommitPolicy::kInPlace: return Layerwise(parts, MakeNoOldBytes(parts));
  }
  throw Error(ErrorCode::kInvalidArgument, "a commit policy of no known kind");
}

}  // namespace layercast
