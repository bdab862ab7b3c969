// What each rank must serve, computed directly from the trainer's weights by torch's own casts: an implementation of
// fp8_per_channel that shares nothing with the engine's kernels.
#pragma once

#include "examples/rl_loop/policy.h"
#include "layercast/version.h"

namespace rl_loop {

// What `served_digest` in a reload's report must be: the digest of every kernel tensor's name and bytes on rank
// `tp_rank` of `tp_size`.
layercast::Digest ExpectedServedDigest(const Policy& policy, int tp_rank, int tp_size);

}  // namespace rl_loop
