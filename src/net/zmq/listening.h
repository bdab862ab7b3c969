// The endpoint at which a server's ZeroMQ socket listens, and the file that an ipc:// endpoint leaves behind. Used by
// RPC servers and publishers.
#pragma once

#include <sys/types.h>

#include <string>
#include <zmq.hpp>

namespace layercast {

// Resource; one thread at a time. Binds a socket, which must outlive this object. ZeroMQ alone would delete whatever
// file an ipc:// endpoint names, be it a checkpoint or a socket at which another process listens, and would leave its
// own file behind. This class refuses to replace such files, and its destructor deletes the one that binding made.
class Listening {
 public:
  // `owner` says in messages whose endpoint it is ("publisher"). Throws kInvalidArgument if the endpoint is malformed,
  // if other hosts can reach it and `may_leave_the_host` is false, or if there is a file at an ipc:// path that is not
  // a socket; kUnavailable if the endpoint cannot be bound, or another process already listens there.
  Listening(zmq::socket_t& socket, const std::string& owner, const std::string& endpoint, bool may_leave_the_host);
  ~Listening();
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

  // The endpoint as it was bound: if any free port was asked for, with the actual one.
  const std::string& endpoint() const { return endpoint_; }

 private:
  std::string endpoint_;
  std::string file_;       // of an ipc:// endpoint; empty otherwise
  ino_t file_number_ = 0;  // its inode: by the end, the file may be another process's
};

}  // namespace layercast
