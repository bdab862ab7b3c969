// Makes opening files fail. Header-only.
#pragma once

#include <sys/resource.h>

namespace layercast::testing {

// As long as it lives, this process can open neither files nor sockets. Resource.
class NoMoreFiles {
 public:
  // `limit`: poll takes no more descriptors than that. So where a thread polls, it is the lowest number that is free.
  explicit NoMoreFiles(rlim_t limit = 0) {
    ::getrlimit(RLIMIT_NOFILE, &before_);
    const rlimit none = {limit, before_.rlim_max};
    ::setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoMoreFiles() { ::setrlimit(RLIMIT_NOFILE, &before_); }
  NoMoreFiles(const NoMoreFiles&) = delete;
  NoMoreFiles& operator=(const NoMoreFiles&) = delete;

 private:
  rlimit before_{};
};

}  // namespace layercast::testing
