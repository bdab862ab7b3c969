// Clocks of several processes as one. Processes that name the same clock share it; of others it is measured, by when
// they are asked and when they answer, how far theirs is ahead.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace layercast {

// Names CLOCK_MONOTONIC as this process sees it: by the running kernel, and by the time namespace, which may move it.
// Empty where that is not known: such a clock is nobody else's.
std::string NameOfClock();

// How far another process's clock is ahead of this one's: at most half of the round trip off. Value.
struct ClockOffset {
  std::int64_t offset_ns = 0;
  std::int64_t round_trip_ns = 0;
  bool operator==(const ClockOffset&) const = default;
};

// An exchange, as NTP has it: when it was asked and when the answer came, by this clock; when it was heard and
// answered, by the other. Returns the better of what it says and of `known`, which is the one with the shorter round
// trip.
ClockOffset BetterOffset(const std::optional<ClockOffset>& known, std::int64_t asked_ns, std::int64_t heard_ns,
                         std::int64_t answered_ns, std::int64_t came_ns);

// Now, by CLOCK_MONOTONIC, in nanoseconds.
std::int64_t TraceNow();
// What is to be added to that for nanoseconds since 1970. Taken once for each trace, so that all of it moves together.
std::int64_t NanosecondsTo1970();

}  // namespace layercast
