// Measures what a piece of work costs the thread that asked for it: the time that passes, and the core seconds that the
// thread, and pools on its behalf, compute meanwhile.
#pragma once

#include <chrono>

#include "src/base/threads/thread_clock.h"
#include "src/base/threads/worker_pool.h"

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

// Value; one thread only.
class WorkClock {
 public:
  // The cost since the last call, or since the clock was made.
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
