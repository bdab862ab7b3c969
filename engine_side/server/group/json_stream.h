// JSON messages over a connected local stream socket, each preceded by its length. The parent process of an engine and
// its ranks talk in this way. The death of the other end is the end of the stream, and is noticed at once.
#pragma once

#include <mutex>
#include <optional>

#include "src/base/unique_fd.h"
#include "src/control/json_forms.h"

namespace layercast {

// Resource. Send, SendIfFree and Shutdown are thread-safe; Receive is for one thread.
class JsonStream {
 public:
  explicit JsonStream(UniqueFd socket) : socket_(std::move(socket)) {}

  // Waits until the socket has taken the message. Returns false if the other end is gone, or after Shutdown.
  bool Send(const Json& message);
  // Sends a small message, or drops it if another Send is under way or the socket has no room.
  void SendIfFree(const Json& message);
  // Waits for the next message. Returns nullopt when the other end is gone, or after Shutdown.
  std::optional<Json> Receive();
  // Ends both directions. A Receive or a Send that waits returns.
  void Shutdown();

 private:
  UniqueFd socket_;
  std::mutex send_mutex_;
};

}  // namespace layercast
