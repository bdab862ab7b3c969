// The schedules that receivers asked for last, so that one that is asked for again need not be sent. The bytes of all
// schedules in use are counted, also of those that only sessions still hold. Used by the desk of versions.
#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>

#include "src/wire/schedule.h"

namespace layercast {

// One thread only.
class RecentSchedules {
 public:
  struct Limits {
    std::size_t kept = 256;  // how many are kept at most; the latest is always kept
    std::size_t kept_bytes = std::size_t{512} << 20;
    std::size_t bytes = std::size_t{2} << 30;  // of all schedules in use, also those that only sessions hold
  };
  explicit RecentSchedules(const Limits& limits) : limits_(limits) {}

  // Null if the schedule is not kept.
  std::shared_ptr<const Schedule> Find(const Digest& digest);
  // Throws kResourceExhausted if all schedules in use would have too many bytes.
  std::shared_ptr<const Schedule> Put(const Digest& digest, Schedule schedule);

 private:
  struct Kept {
    Digest digest;
    std::size_t bytes = 0;
    std::shared_ptr<const Schedule> schedule;  // the other owners are sessions
  };

  std::shared_ptr<const Schedule> Counted(Schedule schedule, std::size_t bytes);
  void MakeRoom(std::size_t bytes);
  void ForgetOldest();

  const Limits limits_;
  std::size_t kept_bytes_ = 0;
  // The other owners are the schedules, because the last owner of a schedule may be a walk's thread.
  const std::shared_ptr<std::atomic<std::size_t>> bytes_ = std::make_shared<std::atomic<std::size_t>>(0);
  std::list<Kept> kept_;  // the latest asked for is first
};

}  // namespace layercast
