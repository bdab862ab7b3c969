// Sixteen random bytes that stand for a right: to connect to a publisher, or to send over a connection. Values.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "src/base/deadline.h"

namespace layercast {

using Token = std::array<std::byte, 16>;

Token RandomToken();  // throws kResourceExhausted
// Takes the same time wherever the tokens differ, so that time tells nothing about a secret.
bool SameToken(const Token& a, const Token& b);

// The tokens by which a channel's connections are admitted: one for each session, which the control link hands out to
// whoever it has authenticated. It is good for a few connections, and only for a short time; a session that has ended
// takes it back, with the connections that it has admitted. Thread-safe.
class Invitations {
 public:
  // By which a connection is there, for as long as it keeps it. Thread-safe.
  class Leave {
   public:
    bool taken_back() const { return taken_back_; }

   private:
    friend class Invitations;
    std::atomic<bool> taken_back_{false};
  };

  // A session connects to measure the channel and to take by it, each once more if it must do with less.
  static constexpr int kConnections = 4;
  static constexpr std::chrono::seconds kGoodFor{60};

  Token Invite();  // throws kResourceExhausted
  // Uses the token once. Null: it was not handed out, is too old, used up or taken back.
  std::shared_ptr<const Leave> Admits(const Token& token);
  // Nobody is admitted by the token any more, and whoever was has its leave taken back.
  void TakeBack(const Token& token);

 private:
  static constexpr std::size_t kMost = 4096;  // that are good; the oldest makes room

  struct Invited {
    Token token;
    Deadline good_until;
    int connections = kConnections;                            // that are left
    std::shared_ptr<Leave> leave = std::make_shared<Leave>();  // the other owners are connections
  };
  std::mutex mutex_;
  std::deque<Invited> invited_;  // oldest first, also those whose connections are there; guarded by mutex_
};

}  // namespace layercast
