// poll(2) with a timeout in microseconds. Used by threads of data channels.
#pragma once

#include <poll.h>

#include <chrono>
#include <ctime>
#include <span>

namespace layercast {

inline void PollFor(std::span<pollfd> items, std::chrono::microseconds time) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
  const timespec limit{seconds.count(), static_cast<long>(std::chrono::nanoseconds(time - seconds).count())};
  ::ppoll(items.data(), items.size(), &limit, nullptr);
}

}  // namespace layercast
