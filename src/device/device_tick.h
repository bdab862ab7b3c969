// How threads of nccl and cuda_ipc wait while a device works: no file descriptor tells when it is done, so they ask.
#pragma once

#include <chrono>

namespace layercast {

// The time between two questions to streams and communicators: far less than a piece takes, yet no core spins.
inline constexpr std::chrono::microseconds kDeviceTick{50};

}  // namespace layercast
