// How long threads of this process have computed, in core seconds.
#pragma once

#include <pthread.h>
#include <time.h>

#include <thread>

namespace layercast {

inline double ReadSeconds(clockid_t clock) {
  timespec spent{};
  if (::clock_gettime(clock, &spent) != 0) return 0;
  return static_cast<double>(spent.tv_sec) + 1e-9 * static_cast<double>(spent.tv_nsec);
}

inline double CoreSecondsOfThisThread() { return ReadSeconds(CLOCK_THREAD_CPUTIME_ID); }

// The core seconds of a thread that runs and has not been joined. 0 if it has ended.
inline double CoreSecondsOf(std::jthread& thread) {
  clockid_t clock{};
  if (!thread.joinable() || ::pthread_getcpuclockid(thread.native_handle(), &clock) != 0) return 0;
  return ReadSeconds(clock);
}

}  // namespace layercast
