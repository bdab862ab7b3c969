#include "src/session/schedules/recent_schedules.h"

#include <algorithm>
#include <string>
#include <utility>

#include "layercast/error.h"

namespace layercast {

std::shared_ptr<const Schedule> RecentSchedules::Find(const Digest& digest) {
  const auto found = std::ranges::find(kept_, digest, &Kept::digest);
  if (found == kept_.end()) return nullptr;
  kept_.splice(kept_.begin(), kept_, found);
  return found->schedule;
}

std::shared_ptr<const Schedule> RecentSchedules::Put(const Digest& digest, Schedule schedule) {
  const std::size_t bytes = schedule.regions().size() * sizeof(Region) + schedule.chunks().size() * sizeof(Chunk);
  MakeRoom(bytes);
  kept_.push_front({digest, bytes, Counted(std::move(schedule), bytes)});
  kept_bytes_ += bytes;
  return kept_.front().schedule;
}

void RecentSchedules::MakeRoom(std::size_t bytes) {
  const auto too_many = [&] {
    return kept_.size() >= limits_.kept || kept_bytes_ + bytes > limits_.kept_bytes || *bytes_ + bytes > limits_.bytes;
  };
  while (!kept_.empty() && too_many()) ForgetOldest();
  if (*bytes_ == 0 || *bytes_ + bytes <= limits_.bytes) return;
  throw Error(ErrorCode::kResourceExhausted, "the schedules of the sessions that are open have " +
                                                 std::to_string(*bytes_) + " bytes: with " + std::to_string(bytes) +
                                                 " more they would have more than the " +
                                                 std::to_string(limits_.bytes) + " that the publisher keeps");
}

void RecentSchedules::ForgetOldest() {
  kept_bytes_ -= kept_.back().bytes;
  kept_.pop_back();
}

std::shared_ptr<const Schedule> RecentSchedules::Counted(Schedule schedule, std::size_t bytes) {
  *bytes_ += bytes;
  return {new Schedule(std::move(schedule)), [count = bytes_, bytes](const Schedule* counted) {
            delete counted;
            *count -= bytes;
          }};
}

}  // namespace layercast
