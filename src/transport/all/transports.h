// The transports of this build.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "src/net/keys/keys.h"
#include "src/transport/channel/channel.h"

namespace layercast {

// Every transport of this build, in order of preference. Some may not be usable here. Channels between GPUs work on
// CUDA device `cuda_device`; if none is given, on the one that is the calling thread's when such a channel is first
// used. Channels whose own connections are authenticated (`zmq`) have `keys`; the others are admitted by a token that
// the control link hands out.
std::vector<std::unique_ptr<Transport>> AllTransports(std::optional<int> cuda_device = std::nullopt,
                                                      const Keys& keys = {});
// The transports with these names; without names, all that are usable here and offered unasked. Throws what
// ThrowNoChannel throws, and kUnsupported if a named transport is not usable here.
std::vector<std::unique_ptr<Transport>> TransportsNamed(std::span<const std::string> names, const Keys& keys = {});
// Throws kUnsupported, naming the channels that this build has, and why it lacks this one.
[[noreturn]] void ThrowNoChannel(const std::string& name);

}  // namespace layercast
