// The transports of this build.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/transport/channel/channel.h"

namespace layercast {

// Every transport of this build, in order of preference. Some may not be usable here. Channels between GPUs work on
// CUDA device `cuda_device`; if none is given, on the one that is the calling thread's when such a channel is first
// used.
std::vector<std::unique_ptr<Transport>> AllTransports(std::optional<int> cuda_device = std::nullopt);
// The transports with these names; without names, all that are usable here and offered unasked. Throws what
// ThrowNoChannel throws, and kUnsupported if a named transport is not usable here.
std::vector<std::unique_ptr<Transport>> TransportsNamed(std::span<const std::string> names);
// Throws kUnsupported, naming the channels that this build has, and why it lacks this one.
[[noreturn]] void ThrowNoChannel(const std::string& name);

}  // namespace layercast
