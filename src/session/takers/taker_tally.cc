#include "src/session/takers/taker_tally.h"

#include <algorithm>

namespace layercast {

// The caller holds mutex_.
TakerTally::Taker& TakerTally::Of(const wire::Hello& from) {
  const auto now = Deadline::Clock::now();
  auto taker = std::ranges::find_if(takers_, [&](const auto& one) { return one.second.count.engine == from.engine; });
  if (taker == takers_.end()) {
    if (takers_.size() == kMostTakers) {
      takers_.erase(std::ranges::min_element(takers_, {}, [](const auto& one) { return one.second.heard; }));
    }
    std::size_t number = 0;
    while (takers_.contains(number)) ++number;
    taker = takers_.try_emplace(number).first;
    taker->second.count.number = number;
    taker->second.count.engine = from.engine;
  }
  taker->second.heard = now;
  return taker->second;
}

void TakerTally::Began(const wire::Hello& from) {
  const std::lock_guard lock(mutex_);
  Of(from);
  ++sessions_;
}

void TakerTally::Came(const wire::Hello& from, std::uint64_t more, std::uint64_t bytes_per_second) {
  const std::lock_guard lock(mutex_);
  Taker& taker = Of(from);
  taker.count.bytes += more;
  bytes_ += more;
  if (from.rank < kMostRanks) taker.rates[from.rank] = bytes_per_second;
}

void TakerTally::Took(const wire::Hello& from, const Version& version) {
  const std::lock_guard lock(mutex_);
  Taker& taker = Of(from);
  if (taker.version != version) {
    taker.version = version;
    taker.ranks.clear();
  }
  if (from.rank < kMostRanks) taker.ranks.insert(from.rank);
  if (taker.ranks.size() < from.ranks) return;
  taker.version.reset();
  ++taker.count.syncs;
  std::map<std::string, std::uint64_t>& steps = taker.count.steps;
  if (!steps.contains(version.lineage) && steps.size() == kMostLineages) steps.erase(steps.begin());
  steps[version.lineage] = version.step;
}

void TakerTally::Ended() {
  const std::lock_guard lock(mutex_);
  --sessions_;
}

void TakerTally::Refused(ErrorCode code) {
  const std::lock_guard lock(mutex_);
  ++refusals_[code];
}

TakerCounts TakerTally::Counts() const {
  const std::lock_guard lock(mutex_);
  TakerCounts counts{.sessions = sessions_, .bytes = bytes_, .refusals = refusals_};
  for (const auto& [number, taker] : takers_) {
    TakerCount& count = counts.takers.emplace_back(taker.count);
    for (const auto& [rank, rate] : taker.rates) count.bytes_per_second += rate;
  }
  return counts;
}

}  // namespace layercast
