// Limits how often warnings about peers are logged, since a peer can cause as many as it likes. The first few are
// logged at once; after that it is one a second, which says how many were left out. Used by the desk of versions.
#pragma once

#include <optional>
#include <string>

#include "src/base/log.h"
#include "src/base/rate_limit.h"

namespace layercast {

// One thread only.
class Complaints {
 public:
  static constexpr int kAtOnce = RateLimit::kAtOnce;

  void Warn(const std::string& text) {
    if (const std::optional<std::string> admitted = Admit(text, Deadline::Clock::now())) log::warn("{}", *admitted);
  }
  // What to log for this warning at that time. nullopt: nothing.
  std::optional<std::string> Admit(const std::string& text, Deadline::Clock::time_point now) {
    const std::optional<std::uint64_t> left_out = limit_.Admit(now);
    if (!left_out) return std::nullopt;
    return *left_out == 0 ? text : text + " (" + std::to_string(*left_out) + " warnings before it were left out)";
  }

 private:
  RateLimit limit_;
};

}  // namespace layercast
