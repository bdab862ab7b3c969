// What the tests of the ucx channel's ends have in common: control connections by hand, and the environment.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <cstddef>
#include <cstdlib>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/net/control_socket.h"
#include "tests/conformance/published_bytes.h"

namespace layercast::ucx_channel {

using Bytes = std::vector<std::byte>;

inline Deadline Soon() { return Deadline::After(test::kPatience); }

inline void WaitFor(const ControlSocket& socket) {
  pollfd item{socket.fd(), POLLIN, 0};
  ::poll(&item, 1, static_cast<int>(std::chrono::milliseconds(test::kPatience).count()));
}

inline Bytes AwaitMessage(ControlSocket& socket) {
  for (const Deadline deadline = Soon(); !deadline.Passed(); WaitFor(socket)) {
    if (auto message = socket.Receive()) return *std::move(message);
  }
  throw Error(ErrorCode::kDeadlineExceeded, "no message");
}

inline void ExpectCut(ControlSocket& socket) {
  try {
    AwaitMessage(socket);
    ADD_FAILURE() << "it was answered";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnavailable) << error.what();
  }
}

// What a test sets is gone after it.
class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { ::setenv(name, value, 1); }
  ~Environment() { ::unsetenv(name_); }
  Environment(const Environment&) = delete;
  Environment& operator=(const Environment&) = delete;

 private:
  const char* name_;
};

}  // namespace layercast::ucx_channel
