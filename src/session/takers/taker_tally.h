// Who has taken how much of what a publisher or a relay offers, in numbers, for metrics. The desk of versions notes in
// it what receivers say, twice a second at most for each; a publisher that nobody asks for metrics has none.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "layercast/version.h"
#include "src/base/deadline.h"
#include "src/wire/frames.h"

namespace layercast {

// An engine, by its name. Value.
struct TakerCount {
  std::size_t number = 0;  // below TakerTally::kMostTakers: that of an engine that is long gone is given to another
  std::string engine;
  std::uint64_t bytes = 0;                       // its ranks', and what they took from relays is in it
  std::uint64_t bytes_per_second = 0;            // of its ranks together, by their last words
  std::uint64_t syncs = 0;                       // versions that all its ranks have taken whole
  std::map<std::string, std::uint64_t> steps{};  // of the last of these, by lineage
};

// Value.
struct TakerCounts {
  std::uint64_t sessions = 0;  // open now
  std::uint64_t bytes = 0;     // of all takers, those too that are forgotten
  std::map<ErrorCode, std::uint64_t> refusals{};
  std::vector<TakerCount> takers{};  // by number
};

// Resource; thread-safe.
class TakerTally {
 public:
  static constexpr std::size_t kMostTakers = 64;
  static constexpr std::uint32_t kMostRanks = 1024;  // of one taker, that are told apart
  static constexpr std::size_t kMostLineages = 8;  // of one taker; the one that comes first in the alphabet goes first

  void Began(const wire::Hello& from);
  // `more` bytes came since it last said so, at that rate.
  void Came(const wire::Hello& from, std::uint64_t more, std::uint64_t bytes_per_second);
  // The receiver has all that it wanted of the version.
  void Took(const wire::Hello& from, const Version& version);
  void Ended();
  void Refused(ErrorCode code);

  TakerCounts Counts() const;

 private:
  struct Taker {
    TakerCount count;
    Deadline::Clock::time_point heard;
    std::map<std::uint32_t, std::uint64_t> rates;  // by rank
    // The version that its ranks are taking, and those that have it whole.
    std::optional<Version> version;
    std::set<std::uint32_t> ranks;
  };
  Taker& Of(const wire::Hello& from);

  mutable std::mutex mutex_;
  std::uint64_t sessions_ = 0;                   // guarded by mutex_
  std::uint64_t bytes_ = 0;                      // guarded by mutex_
  std::map<ErrorCode, std::uint64_t> refusals_;  // guarded by mutex_
  std::map<std::size_t, Taker> takers_;          // by number; guarded by mutex_
};

}  // namespace layercast
