// How many descriptors this process may have open. Used by every program at its beginning.
#pragma once

#include <sys/resource.h>

namespace layercast::cli {

// Raises the soft limit to the hard one. The soft one is 1024 on most hosts, and each publisher costs a rank some
// twenty descriptors. Does nothing where that is not allowed.
inline void RaiseOpenFileLimit() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace layercast::cli
