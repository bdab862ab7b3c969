// Who is connected to a server of HTTP, and which of them must make room for others.
#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <mutex>

#include "src/base/deadline.h"
#include "src/net/http/http_connection.h"

namespace layercast {

// Resource; thread-safe. A connection is among them from Enter to Leave, and must be there as long.
class HttpVisitors {
 public:
  HttpVisitors(std::size_t most_asking, std::size_t most_open, std::chrono::milliseconds in_peace)
      : most_asking_(most_asking), most_open_(most_open), in_peace_(in_peace) {}

  // False: there are so many already that nobody is let in. Otherwise, if too many have not asked yet, the one who was
  // let in first of them is cut, unless that was just now: many who come at one moment are no strangers for that.
  bool Enter(const HttpConnection& connection);
  // Its request has come.
  void Asked(const HttpConnection& connection);
  void Leave(const HttpConnection& connection);

 private:
  struct Visit {
    Deadline::Clock::time_point came;
    bool asking = true;
    bool cut = false;
  };
  const std::size_t most_asking_;
  const std::size_t most_open_;
  const std::chrono::milliseconds in_peace_;
  std::mutex mutex_;
  std::map<const HttpConnection*, Visit> open_;  // guarded by mutex_
};

}  // namespace layercast
