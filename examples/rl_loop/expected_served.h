// What each rank must serve, computed from the trainer's weights on the spot, by torch's own casts: an account of
// fp8_per_channel that shares nothing with the engine's kernels.
#pragma once

#include "examples/rl_loop/policy.h"
#include "layercast/version.h"

namespace rl_loop {

// As `served_digest` of a reload's report: of every kernel tensor's name and bytes on rank `tp_rank` of `tp_size`.
layercast::Digest ExpectedServedDigest(const Policy& policy, int tp_rank, int tp_size);

}  // namespace rl_loop
