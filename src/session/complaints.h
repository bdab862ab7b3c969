// Warnings of what peers do, which can do it as often as they like: some are logged at once, then one a second, which
// says how many were left out.
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
  // What is to be logged of it then; nullopt: nothing.
  std::optional<std::string> Admit(const std::string& text, Deadline::Clock::time_point now);

 private:
  int left_ = kAtOnce;  // that may be logged
  Deadline::Clock::time_point refilled_{};
  std::uint64_t left_out_ = 0;
};

}  // namespace layercast
