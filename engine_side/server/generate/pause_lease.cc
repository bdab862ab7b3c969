#include "engine_side/server/generate/pause_lease.h"

#include <exception>

namespace layercast {

using Clock = std::chrono::steady_clock;

std::future<void> PauseLease::Begin(PauseMode mode, std::chrono::milliseconds lease) {
  End(Error(ErrorCode::kCancelled, "another pause began before this one held"));
  mode_ = mode;
  ends_ = Clock::now() + lease;
  return holds_.emplace().get_future();
}

void PauseLease::End(const Error& why) {
  mode_.reset();
  if (holds_) holds_->set_exception(std::make_exception_ptr(why));
  holds_.reset();
}

void PauseLease::EndIfOver() {
  if (!mode_ || Paused()) return;
  End(Error(ErrorCode::kDeadlineExceeded, "sequences under way did not finish within the pause's lease"));
}

std::optional<PauseMode> PauseLease::mode() const { return Clock::now() < ends_ ? mode_ : std::nullopt; }

void PauseLease::Hold(PauseMode mode) {
  if (!holds_ || mode_ != mode) return;
  holds_->set_value();
  holds_.reset();
}

}  // namespace layercast
