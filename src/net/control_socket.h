// The control connection of channels whose bytes a library moves: over TCP for ucx and nccl, over AF_UNIX for cuda_ipc.
// It carries greetings, requests and pings, and tells at once when the peer's process has ended, even if nobody has
// reaped it yet. Messages are framed by their length (FORMAT.md). Nothing here blocks past a deadline.
#pragma once

#include <sys/types.h>

#include <poll.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/deadline.h"
#include "src/base/unique_fd.h"
#include "src/net/token.h"

namespace layercast {

// The longest message that either end may send.
inline constexpr std::size_t kMaxControlBytes = std::size_t{1} << 20;

// "CHANNEL://HOST:PORT#KEY". Value.
struct ControlAddress {
  std::string channel{};
  std::string host{};
  std::uint16_t port = 0;
  Token key{};

  std::string Text() const;
  // Throws kUnavailable: not an address of this channel.
  static ControlAddress Parse(std::string_view channel, const std::string& text);
};

// The part of an address that may be shown to people: all but its key.
std::string WithoutKey(const std::string& address);
// An address that has a key, of a channel whose addresses have another form than the above; and the key of one, which
// throws kUnavailable if it has none.
std::string WithKey(const std::string& address, const Token& key);
Token KeyOf(const std::string& address);

// Makes a listening socket on a free port of `host`, and sets the host and port of `address`. Throws kInvalidArgument.
UniqueFd Listen(const std::string& host, ControlAddress& address);

// Resource; one thread only.
class ControlSocket {
 public:
  explicit ControlSocket(UniqueFd connected);
  // Throws kUnavailable or kDeadlineExceeded.
  static ControlSocket Connect(const ControlAddress& address, Deadline deadline);

  int fd() const { return fd_.get(); }
  // The network device ("lo") that has this end's address. Throws kUnavailable if none has.
  std::string Device() const;

  // Sends a message, and keeps for Flush what the socket does not take yet. Does not fail: Receive tells when the
  // connection is lost. `descriptor` goes with the message, which works over AF_UNIX only.
  void Send(std::span<const std::byte> message, UniqueFd descriptor = {});
  void Flush();
  std::size_t unsent() const { return unsent_.size(); }
  // What to poll for.
  pollfd Events() const { return {fd(), static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT), 0}; }
  // The next whole message, if it is there; never waits. Throws kUnavailable when the peer has ended the connection and
  // all that it sent has been taken; kCorrupt when a message is longer than any may be.
  std::optional<std::vector<std::byte>> Receive();
  // Waits for the answer to this end's HELLO. Throws kDeadlineExceeded, and what Receive throws.
  std::vector<std::byte> AwaitAnswer(Deadline deadline);
  // Takes the oldest descriptor that has come; returns an empty one if there is none. A descriptor comes no later than
  // the message that it was sent with.
  UniqueFd TakeDescriptor();
  // Passes the messages that are there to `take`, but no more than kMessagesAtOnce, so that other sockets do not wait
  // long. True: some may be left, even if a poll of the socket shows nothing. Throws what Receive and `take` throw.
  template <typename Take>
  bool ReceiveSome(const Take& take) {
    for (int count = 0; count < kMessagesAtOnce; ++count) {
      const std::optional<std::vector<std::byte>> message = Receive();
      if (!message) return false;
      take(std::span(*message));
    }
    return true;
  }

 private:
  static constexpr int kMessagesAtOnce = 64;

  struct UnsentDescriptor {
    std::size_t at;  // in unsent_, where its message begins
    UniqueFd fd;
  };

  bool Fill();  // reads what is there; false if there was nothing
  // Sends a part of unsent_ that begins at `from`, with the descriptor that belongs there. Returns sendmsg's result.
  ssize_t SendSome(std::size_t from);

  UniqueFd fd_;
  std::vector<std::byte> unsent_;
  std::vector<UnsentDescriptor> unsent_descriptors_;  // few
  std::vector<UniqueFd> descriptors_;                 // those that have come and were not taken
  std::vector<std::byte> received_;                   // the first `taken_` bytes have been given out
  std::size_t taken_ = 0;
  bool ended_ = false;
};

}  // namespace layercast
