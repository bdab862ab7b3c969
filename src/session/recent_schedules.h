// The schedules that receivers asked for last: whoever asks for one of them again need not send it.
#pragma once

#include <cstddef>
#include <list>
#include <memory>

#include "src/wire/schedule.h"

namespace layercast {

// One thread only.
class RecentSchedules {
 public:
  // Keeps at most so many, and of so many bytes; the last one in any case.
  RecentSchedules(std::size_t most, std::size_t most_bytes) : most_(most), most_bytes_(most_bytes) {}

  // Null where it is not kept.
  std::shared_ptr<const Schedule> Find(const Digest& digest);
  std::shared_ptr<const Schedule> Put(const Digest& digest, Schedule schedule);

 private:
  struct Kept {
    Digest digest;
    std::size_t bytes = 0;
    std::shared_ptr<const Schedule> schedule;  // the other owners are sessions
  };

  const std::size_t most_;
  const std::size_t most_bytes_;
  std::size_t bytes_ = 0;
  std::list<Kept> kept_;  // the one asked for last is first
};

}  // namespace layercast
