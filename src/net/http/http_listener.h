// The socket on which a server of HTTP listens.
#pragma once

#include <string>

#include "src/base/unique_fd.h"

namespace layercast {

// Resource; immutable.
class HttpListener {
 public:
  // `bind` is "HOST:PORT". Throws kInvalidArgument if it is not, or, unless `may_leave_the_host`, if other hosts reach
  // it, and kUnavailable if it cannot be bound.
  HttpListener(const std::string& bind, bool may_leave_the_host);
  int fd() const { return socket_.get(); }
  // "127.0.0.1:41234"
  const std::string& address() const { return address_; }

 private:
  UniqueFd socket_;
  std::string address_;
};

}  // namespace layercast
