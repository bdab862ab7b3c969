// Sixteen random bytes that stand for a right: to connect to a publisher, or to send over a connection. Values.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <mutex>

#include "src/base/deadline.h"

namespace layercast {

using Token = std::array<std::byte, 16>;

Token RandomToken();  // throws kResourceExhausted
// Takes the same time wherever the tokens differ, so that time tells nothing about a secret.
bool SameToken(const Token& a, const Token& b);

// The tokens by which a channel's connections are admitted: one for each session, which the control link hands out to
// whoever it has authenticated. It is good for a few connections, and only for a short time. Thread-safe.
class Invitations {
 public:
  // A session connects to measure the channel and to take by it, each once more if it must do with less.
  static constexpr int kConnections = 4;
  static constexpr std::chrono::seconds kGoodFor{60};

  Token Invite();  // throws kResourceExhausted
  // Whether the token was handed out, is not too old and not used up. Uses it once.
  bool Admits(const Token& token);

 private:
  static constexpr std::size_t kMost = 4096;  // that are good; the oldest makes room

  struct Invited {
    Token token;
    Deadline good_until;
    int connections = kConnections;  // that are left
  };
  std::mutex mutex_;
  std::deque<Invited> invited_;  // oldest first; guarded by mutex_
};

}  // namespace layercast
