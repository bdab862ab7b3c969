// Limits how often warnings about peers are logged, since a peer can cause as many as it likes. The first few are
// logged at once; after that it is one a second, which says how many were left out. Used by the desk of versions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "src/base/deadline.h"

namespace layercast {

// One thread only.
class Complaints {
 public:
  static constexpr int kAtOnce = 20;

  void Warn(const std::string& text);
  // What to log for this warning at that time. nullopt: nothing.
  std::optional<std::string> Admit(const std::string& text, Deadline::Clock::time_point now);

 private:
  int left_ = kAtOnce;  // how many may still be logged at once
  Deadline::Clock::time_point refilled_{};
  std::uint64_t left_out_ = 0;
};

}  // namespace layercast
