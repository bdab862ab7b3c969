// How a new version gets into the captured buffers, what that costs in memory, and what is served after a failure in
// the middle. Engines choose a policy in ReceiverOptions. docs/commit.md says more.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/export.h"

namespace layercast {

// "One layer" is the largest layer in full precision, with its kernel tensors.
//
// | policy     | memory beside the live weights         | the engine stands still    | a failure in the middle       |
// | ---------- | -------------------------------------- | -------------------------- | ----------------------------- |
// | `kStaged`  | one quantized copy, and one layer      | while that copy is copied  | the copy is done again        |
// | `kUndo`    | a copy of the old bytes, and one layer | while it receives          | the old version is put back   |
// | `kInPlace` | one layer                              | while it receives          | torn until a version is whole |
enum class CommitPolicy : std::uint8_t { kStaged, kUndo, kInPlace };

// The policies' names are "staged", "undo" and "in_place". CommitPolicyNamed throws kInvalidArgument, listing them, for
// any other.
LAYERCAST_PUBLIC CommitPolicy CommitPolicyNamed(std::string_view name);
LAYERCAST_PUBLIC std::string_view CommitPolicyName(CommitPolicy policy);
LAYERCAST_PUBLIC std::vector<std::string> KnownCommitPolicies();

}  // namespace layercast
