// A client's connection to a server of HTTP: its socket, with bounds to what it may send, to how long it may take, and
// to how long it may leave what it is sent. Used by the server, and by those who answer to know when the client has
// gone.
#pragma once

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

#include "src/base/deadline.h"
#include "src/base/unique_fd.h"
#include "src/net/wake_up.h"

namespace layercast {

// What bounds a request. Value.
struct HttpBounds {
  std::size_t head_bytes = std::size_t{64} << 10;  // of the request's first line and its headers
  std::size_t body_bytes = std::size_t{4} << 20;
  std::chrono::milliseconds in_peace{1'000};  // in which nobody is cut for being one of many
  std::chrono::milliseconds to_ask{30'000};   // for all of a request, from the moment in which it connected
  std::chrono::milliseconds to_take{30'000};  // for each piece of an answer
};

// Resource; one thread only, but for Cut.
class HttpConnection {
 public:
  // `ending` rings when the server ends, and must outlive this.
  HttpConnection(UniqueFd socket, const HttpBounds& bounds, const WakeUp& ending);

  // Reads some of the request. 0: there is nothing more, or it is beyond a bound.
  std::size_t Read(char* to, std::size_t bytes);
  // From here on the body is read, of which there may be so much more than of the head.
  void ExpectBody() { most_ += bounds_.body_bytes; }
  // Whether the request went beyond its time, or its bytes.
  bool too_slow() const { return too_slow_; }
  bool too_long() const { return too_long_; }

  // Whether all of it was sent in time.
  bool Write(std::string_view bytes);

  // Waits until `rung` rings. False: the client has gone before, or the server ends.
  bool Await(const WakeUp& rung) const;
  bool ClientIsThere() const;
  bool ending() const;

  // Lets the client read the answer to a request that it has not sent whole: a socket that is closed with bytes to
  // read takes back what it has sent.
  void Linger();
  // Ends the connection, whatever its thread is at. From any thread, as long as the connection is there.
  void Cut() const;
  int fd() const { return socket_.get(); }

 private:
  bool WaitFor(short events, const Deadline& deadline) const;

  const UniqueFd socket_;
  const HttpBounds& bounds_;
  const WakeUp& ending_;
  const Deadline to_ask_;
  std::size_t most_;      // bytes that the request may have up to here
  std::size_t came_ = 0;  // of it
  bool too_slow_ = false;
  bool too_long_ = false;
  std::string read_;  // was received and is not taken, from `taken_` on
  std::size_t taken_ = 0;
};

}  // namespace layercast
