// A receiving end whose requests, and what the publisher says to them, go over a ControlSocket. Base of the receiving
// ends of ucx, cuda_ipc and nccl.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "src/net/control_socket.h"
#include "src/net/poll_for.h"
#include "src/transport/channel/fetching_base.h"

namespace layercast {

// One thread only.
template <typename Chunk>
class ControlledFetching : public FetchingBase<Chunk> {
 protected:
  using FetchingBase<Chunk>::FetchingBase;

  void Send(const std::vector<std::byte>& message) final { control_->Send(message); }
  void ExpectThere() override { TakeMessages(); }
  // Takes the messages that are there; false if there was none.
  bool TakeMessages() {
    control_->Flush();
    bool heard = false;
    while (const auto message = control_->Receive()) {
      TakeMessage(*message);
      this->liveness_.Heard();
      heard = true;
    }
    return heard;
  }
  virtual void TakeMessage(std::span<const std::byte> message) = 0;
  // Lets this end go on until `stands`. Throws kDeadlineExceeded with the text that `late` makes.
  template <typename Late>
  void AwaitStanding(const bool& stands, Deadline deadline, const Late& late) {
    while (!stands) {
      if (this->Progress()) continue;
      if (deadline.Passed()) throw Error(ErrorCode::kDeadlineExceeded, late());
      this->Sleep(deadline.AtMost(std::chrono::seconds(1)));
    }
  }
  // Sleeps for that time at most, until the control socket or the descriptor `also` has something.
  void SleepFor(std::chrono::microseconds time, int also = -1) {
    pollfd items[] = {control_->Events(), {also, POLLIN, 0}};  // poll ignores negative descriptors
    PollFor(items, time);
  }

  std::optional<ControlSocket> control_;
};

}  // namespace layercast
