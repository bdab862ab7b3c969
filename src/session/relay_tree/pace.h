// How a receiver progresses, by its own reports; and from that, whether a relay of a snapshot holds up the receivers
// that take from it. A relay that is far slower than they are is as bad as a dead one, though it still answers. Used by
// the desk of versions and the relay tree.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "src/base/deadline.h"
#include "src/wire/frames.h"

namespace layercast {

// Value.
class Pace {
 public:
  using TimePoint = Deadline::Clock::time_point;
  // How often a receiver reports its progress, unless it is busy with what it has.
  static constexpr std::chrono::milliseconds kPeriod{500};

  explicit Pace(TimePoint joined) : heard_(joined) {}

  // Takes a report, and returns how long the period was. A report that makes no sense (a clock went back) is ignored.
  std::chrono::microseconds Note(const wire::Progress& progress, TimePoint now);

  // A receiver that reports nothing for several periods is not waiting for chunks, but busy with something else.
  bool IsSilent(TimePoint now) const { return now - heard_ > 3 * kPeriod; }
  // The share of the last period that the receiver spent waiting for chunks, and the bytes per second that came in it.
  double waiting() const { return waiting_; }
  double rate() const { return rate_; }
  // The receiver spent the last period waiting, and did not consume one chunk in it.
  bool starves() const;
  double mean_rate() const;
  std::uint64_t bytes() const { return last_.bytes; }
  // The bytes per second that the receiver could get from the publisher if it were alone; 0: not known.
  double within_reach() const { return static_cast<double>(last_.bytes_per_second); }

 private:
  wire::Progress last_;
  TimePoint heard_;
  double waiting_ = 1;  // a relay that has reported nothing yet counts as waiting, and is not blamed
  double rate_ = 0;
};

// What is known of a relay when its followers are judged to be held up by it or not. Value.
struct RelayPace {
  const Pace& pace;
  bool finished = false;  // the relay has all chunks
};

// Why `relay` holds up `follower`, for the log; nullopt: it does not. It does if the follower mostly waits, and either
// - the relay does not have all chunks and hardly waits for more, so it is slower than the follower at consuming them;
// or
// - far less comes than the publisher could send and than `others` get (the rates of those who take the same just now),
//   so the relay sends slowly. Without others, what the relay itself got is the measure. If it had everything before it
//   reported anything, what the publisher could send is the only one.
std::optional<std::string> WhyHeldUp(const Pace& follower, const RelayPace& relay, std::span<const double> others,
                                     Pace::TimePoint now);

}  // namespace layercast
