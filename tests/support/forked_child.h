// A child that was forked from the test itself, in which only the thread that forked goes on.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <functional>

namespace layercast::testing {

// Whether `run`, in such a child, returned true within 20 seconds.
inline bool IsTrueInAForkedChild(const std::function<bool()>& run) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(20);  // it may wait for threads that are not there
    ::_exit(run() ? 0 : 1);
  }
  int status = -1;
  return child > 0 && ::waitpid(child, &status, 0) == child && status == 0;
}

}  // namespace layercast::testing
