// The schedules that receivers asked for last: whoever asks for one of them again need not send it. Those that are in
// use, remembered or not, are counted: sessions have them for as long as they like.
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
    std::size_t kept = 256;  // at most; the last one in any case
    std::size_t kept_bytes = std::size_t{512} << 20;
    std::size_t bytes = std::size_t{2} << 30;  // with those that sessions alone still have
  };
  explicit RecentSchedules(const Limits& limits) : limits_(limits) {}

  // Null where it is not kept.
  std::shared_ptr<const Schedule> Find(const Digest& digest);
  // Throws kResourceExhausted where all that are in use have too many bytes.
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
  // The other owners are schedules: the last of a schedule's owners may be a walk's thread.
  const std::shared_ptr<std::atomic<std::size_t>> bytes_ = std::make_shared<std::atomic<std::size_t>>(0);
  std::list<Kept> kept_;  // the one asked for last is first
};

}  // namespace layercast
