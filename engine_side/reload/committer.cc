#include "engine_side/reload/committer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "engine_side/reload/captured_on_device.h"
#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::pair<std::string_view, CommitPolicy> kPolicies[] = {
    {"staged", CommitPolicy::kStaged}, {"undo", CommitPolicy::kUndo}, {"in_place", CommitPolicy::kInPlace}};

std::unique_ptr<Committer> MakeCommitterOnDevice(CommitPolicy policy, const CommitParts& parts) {
  if (policy == CommitPolicy::kStaged) return MakeDeviceStagedCommitter(parts);
  const auto& tensors = parts.layout.tensors();
  const auto there = std::ranges::find_if(tensors, IsOnDevice, &KernelTensor::destination);
  throw Error(ErrorCode::kUnsupported,
              "commit policy " + std::string(CommitPolicyName(policy)) +
                  ": expected captured buffers in host memory, got '" + there->destination.name + "' on CUDA device " +
                  std::to_string(there->destination.device.index) + ", where only staged works");
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
  if (parts.device != nullptr) return MakeCommitterOnDevice(policy, parts);
  switch (policy) {
    case CommitPolicy::kStaged: return MakeStagedCommitter(parts);
    case CommitPolicy::kUndo: return MakeUndoCommitter(parts);
    case CommitPolicy::kInPlace: return MakeInPlaceCommitter(parts);
  }
  throw Error(ErrorCode::kInvalidArgument, "a commit policy of no known kind");
}

}  // namespace layercast
