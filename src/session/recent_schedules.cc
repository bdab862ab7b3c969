#include "src/session/recent_schedules.h"

#include <algorithm>
#include <utility>

namespace layercast {

std::shared_ptr<const Schedule> RecentSchedules::Find(const Digest& digest) {
  const auto found = std::ranges::find(kept_, digest, &Kept::digest);
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return found->schedule;
}

std::shared_ptr<const Schedule> RecentSchedules::Put(const Digest& digest, Schedule schedule) {
  const std::size_t bytes = schedule.regions().size() * sizeof(Region) + schedule.chunks().size() * sizeof(Chunk);
  kept_.push_front({digest, bytes, std::make_shared<const Schedule>(std::move(schedule))});
  bytes_ += bytes;
  while (kept_.size() > 1 && (kept_.size() > most_ || bytes_ > most_bytes_)) {
    bytes_ -= kept_.back().bytes;
    kept_.pop_back();
  }
  return kept_.front().schedule;
}

}  // namespace layercast
