// Where a server's socket listens, from binding to the end.
#pragma once

#include <sys/types.h>

#include <string>
#include <zmq.hpp>

namespace layercast {

// Binds a socket. ZeroMQ deletes whatever file an ipc:// endpoint names, be it a checkpoint or the socket of a process
// that listens there, and leaves its own behind: here others' files are refused, and ours goes with this object, which
// must not outlive the socket.
class Listening {
 public:
  // `owner`: whose endpoint it is, for messages ("publisher"). Throws kInvalidArgument on an endpoint of another form,
  // one that other hosts reach though `allow_remote` is not set, and an ipc:// path where a file that is no socket is;
  // kUnavailable where it cannot be bound, or somebody listens already.
  Listening(zmq::socket_t& socket, const std::string& owner, const std::string& endpoint, bool allow_remote);
  ~Listening();
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

  // The endpoint as it was bound: with its port, where any was asked for.
  const std::string& endpoint() const { return endpoint_; }

 private:
  std::string endpoint_;
  std::string file_;  // of an ipc:// endpoint; empty otherwise
  ino_t file_number_ = 0;
};

}  // namespace layercast
