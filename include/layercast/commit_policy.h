// How a new version gets into the captured buffers, what that costs in memory, and what is served if it fails in the
// middle. docs/commit.md says more.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "layercast/export.h"

namespace layercast {

// | policy      | memory beside the live weights             | the engine stands still | a failure in the middle      |
// | ----------- | ------------------------------------------ | ----------------------- | ---------------------------- |
// | `kStaged`   | one quantized copy                         | while that is copied    | the copy is done again       |
// | `kUndo`     | one quantized copy, of the old; one layer  | while it receives       | the old version is put back  |
// | `kInPlace`  | one layer, full precision and quantized    | while it receives       | torn until a version is whole|
enum class CommitPolicy : std::uint8_t { kStaged, kUndo, kInPlace };

// "staged", "undo", "in_place". Throws kInvalidArgument listing them.
LAYERCAST_PUBLIC CommitPolicy CommitPolicyNamed(std::string_view name);
LAYERCAST_PUBLIC std::string_view CommitPolicyName(CommitPolicy policy);
LAYERCAST_PUBLIC std::vector<std::string> KnownCommitPolicies();

}  // namespace layercast
