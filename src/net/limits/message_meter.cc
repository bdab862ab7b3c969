#include "src/net/limits/message_meter.h"

#include <utility>

namespace layercast {
namespace {

// An allowance for ZMTP's own bytes (framing) and for what its decoder has read ahead.
constexpr std::uint64_t kSlack = 64U << 10;

// The most that ZMTP and CURVE add to a message of one frame, as all messages of this project are. Of frames beyond the
// first it does not count as handled: else many small ones would hide what follows them.
constexpr std::uint64_t kFraming = 9 + 33;

// If this end itself has looked away for so long, its peer has not paused.
constexpr std::chrono::seconds kAway{1};

}  // namespace

MessageMeter::MessageMeter(int fd, std::uint64_t most_bytes, std::chrono::milliseconds patience, Drips drips)
    : connection_(fd),
      most_bytes_(most_bytes + kSlack),
      patience_(patience),
      drips_(drips),
      judged_(Deadline::Clock::now() - kLook),
      grown_(Deadline::Clock::now()),
      begun_(grown_) {}

void MessageMeter::EndMessage(std::size_t bytes) {
  ended_ = heard_ = true;
  handled_ += bytes + kFraming;
}

std::string MessageMeter::Complaint(std::uint64_t most_bytes, std::chrono::milliseconds patience, Drips drips) {
  const std::string wait = std::to_string(patience.count()) + " ms";
  std::string text =
      "a message has not ended within " + std::to_string(most_bytes) + " bytes, or has paused for " + wait;
  if (drips == Drips::kAllowed) return text;
  return text + ", or drips: it has taken " + wait + " and a second for each " + std::to_string(kSlowest) + " bytes";
}

void MessageMeter::Look() {
  traffic_ = connection_.Traffic();
  if (heard_) handled_ = std::min(handled_, traffic_.perhaps_read);
}

bool MessageMeter::IsEndless() {
  const Time now = Deadline::Clock::now();
  if (now - judged_ < kLook) return false;
  Look();
  const auto away = now - judged_;
  if (traffic_.read != read_ || away > kAway) grown_ = now;
  if (ended_ || unhandled() <= kSmall) begun_ = now;
  if (away > kAway) begun_ = std::min(now, begun_ + away);
  // Counts only what had been read by the last judgement: what was read since may have completed a message that was not
  // yet there to be taken.
  const bool too_long = read_ > handled_ && read_ - handled_ > most_bytes_;
  const bool endless = !ended_ && (too_long || HasPaused(now));
  judged_ = now;
  read_ = traffic_.read;
  ended_ = false;
  return endless;
}

// For too long, or time and again.
bool MessageMeter::HasPaused(Time now) const {
  if (unhandled() <= kSmall) return false;
  const bool drips = now - begun_ >= patience_ + std::chrono::seconds(unhandled() / kSlowest);
  return now - grown_ >= patience_ || (drips && drips_ == Drips::kEnd);
}

}  // namespace layercast
