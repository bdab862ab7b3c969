#include "src/zmq/message_meter.h"

#include <utility>

namespace layercast {
namespace {

// An allowance for ZMTP's own bytes (greeting, handshake and framing) and for what its decoder has read ahead.
constexpr std::uint64_t kSlack = 64U << 10;

}  // namespace

MessageMeter::MessageMeter(int fd, std::uint64_t most_bytes)
    : connection_(fd), most_bytes_(most_bytes + kSlack), next_look_(Deadline::Clock::now()) {}

bool MessageMeter::Exceeded() {
  const auto now = Deadline::Clock::now();
  if (now < next_look_) return false;
  next_look_ = now + kLook;
  // Counts only what had been read by the last look: what was read since may have completed a message that was not yet
  // there to be taken.
  const bool exceeded = !ended_ && read_ > begun_ + most_bytes_;
  read_ = connection_.BytesRead();
  if (std::exchange(ended_, false)) begun_ = read_;
  return exceeded;
}

}  // namespace layercast
