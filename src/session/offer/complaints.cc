#include "src/session/offer/complaints.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "src/base/log.h"

namespace layercast {

void Complaints::Warn(const std::string& text) {
  if (const std::optional<std::string> admitted = Admit(text, Deadline::Clock::now())) log::warn("{}", *admitted);
}

std::optional<std::string> Complaints::Admit(const std::string& text, Deadline::Clock::time_point now) {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(now - refilled_);
  if (seconds.count() > 0) {
    left_ = static_cast<int>(std::min<std::int64_t>(kAtOnce, left_ + seconds.count()));
    refilled_ = now;
  }
  if (left_ == 0) {
    ++left_out_;
    return std::nullopt;
  }
  --left_;
  if (left_out_ == 0) return text;
  return text + " (" + std::to_string(std::exchange(left_out_, 0)) + " warnings before it were left out)";
}

}  // namespace layercast
