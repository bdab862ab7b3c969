// What a piece of work costs whoever asked for it: the time that it takes, and what the calling thread and its pool
// compute meanwhile.
#pragma once

#include <time.h>

#include <chrono>

#include "src/base/worker_pool.h"

namespace layercast {

struct WorkCost {
  double seconds = 0;
  double core_seconds = 0;

  WorkCost& operator+=(const WorkCost& other) {
    seconds += other.seconds;
    core_seconds += other.core_seconds;
    return *this;
  }
};

// One thread only.
class WorkClock {
 public:
  explicit WorkClock(WorkerPool& pool) : pool_(pool), began_(Now()) {}

  // Since the last call, or since it was made.
  WorkCost Lap() {
    const WorkCost now = Now();
    const WorkCost lap{now.seconds - began_.seconds, now.core_seconds - began_.core_seconds};
    began_ = now;
    return lap;
  }

 private:
  WorkCost Now() {
    timespec thread{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &thread);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now().time_since_epoch();
    return {wall.count(),
            static_cast<double>(thread.tv_sec) + 1e-9 * static_cast<double>(thread.tv_nsec) + pool_.core_seconds()};
  }

  WorkerPool& pool_;
  WorkCost began_;
};

}  // namespace layercast
