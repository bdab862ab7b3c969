// The receivers that an offering end serves, each over its control socket: what the service threads of ucx, cuda_ipc
// and nccl have in common.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/unique_fd.h"
#include "src/net/accept_pause.h"
#include "src/net/poll_for.h"
#include "src/net/wake_up.h"

namespace layercast {

// How many bytes of messages may wait here for one receiver to read them; if there are more, it loses its connection. A
// receiver that does read never has more than 3.5 MiB waiting: cuda_ipc's grants of all regions that may be under way.
inline constexpr std::size_t kMostUnsent = std::size_t{4} << 20;

// Resource; one thread only. A `Receiver` is constructed from its socket, the context and its number, and has
// control(), Progress(), TakeMessages(), more() and TooLate(). If one of its functions throws, that receiver loses its
// connection.
template <typename Receiver, typename Context>
class Receivers {
 public:
  // Serves no more than `most` receivers at a time. `context` is what they have in common.
  Receivers(std::string channel, UniqueFd listener, const Context& context, const WakeUp& wake, std::size_t most)
      : channel_(std::move(channel)), listener_(std::move(listener)), context_(context), wake_(wake), most_(most) {}
  Receivers(const Receivers&) = delete;
  Receivers& operator=(const Receivers&) = delete;

  const std::list<Receiver>& all() const { return all_; }

  // Calls `step` with each receiver. Those for which it throws, and those that are too late, lose their connection.
  template <typename Step>
  void ForEach(const Step& step) {
    for (auto at = all_.begin(); at != all_.end();) {
      bool lost = true;
      try {
        step(*at);
        lost = at->TooLate();
      } catch (const Error& error) {
        // Receivers come and go; only one that breaks the protocol is worth a warning.
        if (error.code() != ErrorCode::kUnavailable) {
          log::warn("{}: receiver {} loses its connection: {}", channel_, at->number(), error.what());
        }
      }
      at = lost ? all_.erase(at) : std::next(at);
    }
  }

  // Lets every receiver go on; true if anything moved.
  bool Progress() {
    bool moved = false;
    ForEach([&](Receiver& receiver) { moved = receiver.Progress() || moved; });
    return moved;
  }

  // Waits up to `timeout` for the sockets and for `items`, then takes the messages and the new connections that are
  // there.
  void TakeMessages(std::chrono::microseconds timeout, std::vector<pollfd> items = {}) {
    const std::size_t first = items.size();
    items.push_back({listener_.get(), pause_.events(), 0});
    items.push_back({wake_.fd(), POLLIN, 0});
    for (const Receiver& receiver : all_) {
      if (receiver.more()) timeout = std::chrono::microseconds(0);
      items.push_back(receiver.control().Events());
    }
    PollFor(items, pause_.AtMost(timeout));
    if (items[first + 1].revents != 0) wake_.Clear();
    std::size_t item = first + 2;
    ForEach([&](Receiver& receiver) {
      if (items[item++].revents != 0 || receiver.more()) receiver.TakeMessages();
      if (receiver.control().unsent() > kMostUnsent) throw Error(ErrorCode::kCorrupt, "it takes no answers");
    });
    if (items[first].revents != 0) Accept();
  }

 private:
  void Accept() {
    while (true) {
      UniqueFd connected(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      if (!connected) return pause_.Failed(errno);
      if (all_.size() < most_) all_.emplace_back(std::move(connected), context_, ++numbers_);
    }
  }

  const std::string channel_;
  const UniqueFd listener_;
  AcceptPause pause_;
  const Context context_;
  const WakeUp& wake_;
  const std::size_t most_;
  std::list<Receiver> all_;
  std::uint64_t numbers_ = 0;  // how many receivers have come so far
};

}  // namespace layercast
