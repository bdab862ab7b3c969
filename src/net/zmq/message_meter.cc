#include "src/net/zmq/message_meter.h"

#include <utility>

namespace layercast {
namespace {

// An allowance for ZMTP's own bytes (greeting, handshake and framing) and for what its decoder has read ahead.
constexpr std::uint64_t kSlack = 64U << 10;

// If this end itself has looked away for so long, its peer has not paused.
constexpr std::chrono::seconds kAway{1};

}  // namespace

MessageMeter::MessageMeter(int fd, std::uint64_t most_bytes, std::chrono::milliseconds patience)
    : connection_(fd),
      most_bytes_(most_bytes + kSlack),
      patience_(patience),
      last_look_(Deadline::Clock::now() - kLook),
      last_grown_(Deadline::Clock::now()) {}

std::string MessageMeter::Complaint(std::uint64_t most_bytes, std::chrono::milliseconds patience) {
  return "a message has not ended within " + std::to_string(most_bytes) + " bytes, or has paused for " +
         std::to_string(patience.count()) + " ms";
}

bool MessageMeter::IsEndless() {
  const Time now = Deadline::Clock::now();
  if (now - last_look_ < kLook) return false;
  const std::uint64_t read = connection_.BytesRead();
  // Counts only what had been read by the last look: what was read since may have completed a message that was not yet
  // there to be taken.
  const bool endless = !ended_ && (read_ > begun_ + most_bytes_ || HasPaused(now, read));
  last_look_ = now;
  read_ = read;
  if (std::exchange(ended_, false)) begun_ = read_;
  return endless;
}

// Small beginnings of messages cost little, and may be the handshake's.
bool MessageMeter::HasPaused(Time now, std::uint64_t read) {
  if (read != read_ || now - last_look_ > kAway) last_grown_ = now;
  return read > begun_ + kSlack && now - last_grown_ >= patience_;
}

}  // namespace layercast
