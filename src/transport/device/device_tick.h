// How threads wait while a device works, of which no descriptor tells.
#pragma once

#include <chrono>

namespace layercast {

// How often streams and communicators are asked meanwhile: far less than a piece takes, and no core spins.
inline constexpr std::chrono::microseconds kDeviceTick{50};

}  // namespace layercast
