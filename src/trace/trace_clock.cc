#include "src/trace/trace_clock.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <fstream>

#include "src/trace/trace_lane.h"

namespace layercast {

std::string NameOfClock() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  std::array<char, 64> name{};
  const ssize_t length = ::readlink("/proc/self/ns/time", name.data(), name.size());
  if (boot.empty() || length <= 0) return {};
  return boot + "/" + std::string(name.data(), static_cast<std::size_t>(length));
}

ClockOffset BetterOffset(const std::optional<ClockOffset>& known, std::int64_t asked_ns, std::int64_t heard_ns,
                         std::int64_t answered_ns, std::int64_t came_ns) {
  const ClockOffset now{.offset_ns = ((heard_ns - asked_ns) + (answered_ns - came_ns)) / 2,
                        .round_trip_ns = (came_ns - asked_ns) - (answered_ns - heard_ns)};
  return known && known->round_trip_ns <= now.round_trip_ns ? *known : now;
}

std::int64_t TraceNow() { return TraceNanoseconds(TraceTime::clock::now()); }

std::int64_t NanosecondsTo1970() {
  const auto since = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count() - TraceNow();
}

}  // namespace layercast
