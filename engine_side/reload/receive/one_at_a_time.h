// Lets one call of an object in at a time, where a second one would find it half changed: one of another thread, or of
// a callback that runs during the first. Used by the receiver.
#pragma once

#include <atomic>
#include <string>

#include "layercast/error.h"

namespace layercast {

// Thread-safe.
class OneAtATime {
 public:
  // Returns what `call` does. Throws kFailedPrecondition, naming `name`, during another call.
  template <class Call>
  decltype(auto) Run(const char* name, const Call& call) {
    if (busy_.exchange(true)) {
      throw Error(ErrorCode::kFailedPrecondition,
                  std::string(name) + " was called during another call, by another thread or a callback");
    }
    const struct Leave {
      std::atomic<bool>& busy;
      ~Leave() { busy = false; }
    } leave{busy_};
    return call();
  }

 private:
  std::atomic<bool> busy_{false};
};

}  // namespace layercast
