// Who is connected to a server of HTTP, and which of them must make room for others.
#pragma once

#include <cstddef>
#include <map>
#include <mutex>

#include "src/net/http/http_connection.h"

namespace layercast {

// Resource; thread-safe. A connection is among them from Enter to Leave, and must be there as long.
class HttpVisitors {
 public:
  HttpVisitors(std::size_t most_asking, std::size_t most_open) : most_asking_(most_asking), most_open_(most_open) {}

  // False: there are so many already that nobody is let in. Otherwise, if too many have not asked yet, the one who was
  // let in first of them is cut.
  bool Enter(const HttpConnection& connection);
  // Its request has come.
  void Asked(const HttpConnection& connection);
  void Leave(const HttpConnection& connection);

 private:
  struct Visit {
    unsigned long number;  // in the order in which they came
    bool asking = true;
    bool cut = false;
  };
  const std::size_t most_asking_;
  const std::size_t most_open_;
  std::mutex mutex_;
  std::map<const HttpConnection*, Visit> open_;  // guarded by mutex_, like the number
  unsigned long last_ = 0;
};

}  // namespace layercast
