// JSON messages over a connected local stream socket, each behind its length: how the parent process of an engine talks
// to its ranks. The other end's death is the end of the stream, noticed at once.
#pragma once

#include <mutex>
#include <optional>

#include "src/base/unique_fd.h"
#include "src/control/json_forms.h"

namespace layercast {

// Resource. Send is thread-safe; Receive is for one thread.
class JsonStream {
 public:
  explicit JsonStream(UniqueFd socket) : socket_(std::move(socket)) {}

  // Waits until it is taken. False when the other end is gone, or after Shutdown.
  bool Send(const Json& message);
  // A small message; dropped where a Send waits, or would have to.
  void SendIfFree(const Json& message);
  // Waits. nullopt when the other end is gone, or after Shutdown.
  std::optional<Json> Receive();
  // Ends both directions: a Receive or a Send that waits returns.
  void Shutdown();

 private:
  UniqueFd socket_;
  std::mutex send_mutex_;
};

}  // namespace layercast
