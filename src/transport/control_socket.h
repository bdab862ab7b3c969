// The connection beside a library that only moves bytes (UCX, NCCL: over TCP; CUDA: AF_UNIX): greetings, requests,
// pings. It is what tells at once that a peer has ended, also one that nobody has reaped yet. Messages are framed by
// their length (FORMAT.md). Nothing here blocks past a deadline.
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
#include "src/transport/token.h"

struct msghdr;

namespace layercast {

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

// What may be shown of an address: all but its key.
std::string WithoutKey(const std::string& address);

// A listening socket on a free port of `host`, which `address` then has. Throws kInvalidArgument.
UniqueFd Listen(const std::string& host, ControlAddress& address);

// One thread only.
class ControlSocket {
 public:
  explicit ControlSocket(UniqueFd connected);
  // Throws kUnavailable or kDeadlineExceeded.
  static ControlSocket Connect(const ControlAddress& address, Deadline deadline);

  int fd() const { return fd_.get(); }
  // The network device that the connection goes out by ("lo"), by this end's address.
  std::string Device() const;

  // Sends, or keeps what the socket does not take yet. A lost connection is for Receive to tell. `descriptor` goes with
  // the message, over AF_UNIX alone.
  void Send(std::span<const std::byte> message, UniqueFd descriptor = {});
  void Flush();
  std::size_t unsent() const { return unsent_.size(); }
  // What to poll for.
  pollfd Events() const { return {fd(), static_cast<short>(unsent_.empty() ? POLLIN : POLLIN | POLLOUT), 0}; }
  // The next whole message, if it is there. Throws kUnavailable when the peer has ended the connection and all that it
  // sent has been taken; kCorrupt when a message is longer than any may be.
  std::optional<std::vector<std::byte>> Receive();
  // The answer to our HELLO. Throws kDeadlineExceeded, and what Receive does.
  std::vector<std::byte> AwaitAnswer(Deadline deadline);
  // The first descriptor that came and was not taken; none when there is none. It comes no later than its message.
  UniqueFd TakeDescriptor();
  // Hands on the messages that are there, but not so many that other sockets' wait long. True: some may be left,
  // whatever the socket says. Throws what Receive and `take` throw.
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

  bool Fill();  // takes what is there; false when nothing was
  // Sends some of unsent_ from there on, with the descriptor whose turn it is. What the socket says of it.
  ssize_t SendSome(std::size_t from);
  void KeepDescriptor(msghdr& header);

  UniqueFd fd_;
  std::vector<std::byte> unsent_;
  std::vector<UnsentDescriptor> unsent_descriptors_;  // few; as vectors they cost nothing where there are none
  std::vector<UniqueFd> descriptors_;                 // that came
  std::vector<std::byte> received_;                   // the first `taken_` bytes have been given out
  std::size_t taken_ = 0;
  bool ended_ = false;
};

}  // namespace layercast
