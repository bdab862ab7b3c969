// How threads wait for sockets while a device works, of which no descriptor tells.
#pragma once

#include <poll.h>

#include <chrono>
#include <ctime>
#include <span>

namespace layercast::nccl_channel {

// How often streams and communicators are asked meanwhile: far less than a piece takes, and no core spins.
inline constexpr std::chrono::microseconds kDeviceTick{50};

inline void PollFor(std::span<pollfd> items, std::chrono::microseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec limit{seconds.count(), static_cast<long>(std::chrono::nanoseconds(time - seconds).count())};
  ::ppoll(items.data(), items.size(), &limit, nullptr);
}

}  // namespace layercast::nccl_channel
