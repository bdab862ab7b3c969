// What a piece of work costs whoever asked for it: the time that it takes, and what the calling thread, and pools for
// it, compute meanwhile.
#pragma once

#include <chrono>

#include "src/base/thread_clock.h"
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
  // Since the last call, or since it was made.
  WorkCost Lap() {
    const WorkCost now = Now();
    const WorkCost lap{now.seconds - began_.seconds, now.core_seconds - began_.core_seconds};
    began_ = now;
    return lap;
  }

 private:
  static WorkCost Now() {
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now().time_since_epoch();
    return {wall.count(), CoreSecondsOfThisThread() + WorkerPool::HelpersCoreSeconds()};
  }

  WorkCost began_ = Now();
};

}  // namespace layercast
