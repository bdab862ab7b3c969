// The process in which an object was made. Its threads are not in a child that was forked later, which therefore can
// neither use nor destroy it. Used by objects of the public API that have threads.
#pragma once

#include <unistd.h>

#include <string>

#include "layercast/error.h"

namespace layercast {

// Value.
class HomeProcess {
 public:
  bool IsHere() const { return ::getpid() == pid_; }
  // Throws kFailedPrecondition unless this is that process.
  void Expect(const std::string& object) const {
    if (IsHere()) return;
    throw Error(ErrorCode::kFailedPrecondition, object + " of process " + std::to_string(pid_) +
                                                    " was used in process " + std::to_string(::getpid()) +
                                                    ", which was forked from it: make one there");
  }

 private:
  pid_t pid_ = ::getpid();
};

}  // namespace layercast
