// How a receiver gets on with a snapshot, by what it says of itself, and by that, whether a relay holds up those who
// take from it: one that has come far behind what they could take is as bad as a dead one, and answers all the same.
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
  // A receiver says how it gets on this often, unless it is busy with what it has.
  static constexpr std::chrono::milliseconds kPeriod{500};

  explicit Pace(TimePoint joined) : heard_(joined) {}

  // Takes what makes no sense (a clock that went back) for nothing said. Returns how long the period was.
  std::chrono::microseconds Note(const wire::Progress& progress, TimePoint now);

  // A receiver that says nothing for periods on end has something else to do than to wait for chunks.
  bool IsSilent(TimePoint now) const { return now - heard_ > 3 * kPeriod; }
  // The share of the last period that went by waiting for chunks, and the bytes per second that came in it.
  double waiting() const { return waiting_; }
  double rate() const { return rate_; }
  // The last period went by waiting, and not one chunk was used up in it.
  bool starves() const;
  double mean_rate() const;
  std::uint64_t bytes() const { return last_.bytes; }
  // Bytes per second that the receiver could have from the publisher, if it were alone; 0: not known.
  double within_reach() const { return static_cast<double>(last_.bytes_per_second); }

 private:
  wire::Progress last_;
  TimePoint heard_;
  double waiting_ = 1;  // nobody is blamed who has said nothing yet
  double rate_ = 0;
};

// A relay, as who takes from it sees it: perhaps better off without it. Value.
struct RelayPace {
  const Pace& pace;
  bool finished = false;  // the relay has all chunks
};

// Why `relay` holds up `follower`, for the log; nullopt: it does not. It does where the follower mostly waits, while
// - the relay has not all chunks, and hardly waits for more: it is slower to use them up than the follower; or
// - far less comes than the publisher could send, and than `others` (the pace of those who take the same just now) get:
//   the relay sends slowly. Where there are no others, what the relay itself got is the measure; where it had
//   everything before it said anything of that, what the publisher could send is the only one.
std::optional<std::string> WhyHeldUp(const Pace& follower, const RelayPace& relay, std::span<const double> others,
                                     Pace::TimePoint now);

}  // namespace layercast
