// How fast this machine does what every sync does: copy bytes, digest them, and hand them to another process. Used by
// `layercast doctor`.
#pragma once

#include <cstddef>
#include <vector>

#include "src/base/deadline.h"
#include "src/session/choose/channel_chooser.h"

namespace layercast::cli {

// A rate with one thread, and with all of them. Value.
struct Rates {
  double one_gb_per_s = 0;
  double all_gb_per_s = 0;
};

// Value.
struct Measurement {
  std::size_t threads = 0;
  Rates copy{};                          // bytes that are copied from memory to memory
  Rates digest{};                        // bytes that are digested
  std::vector<ChannelTrial> channels{};  // from a publisher of this process over loopback
};

// Takes a second or two, and some hundred megabytes. Throws what a publisher's constructor throws, and what a session
// with it does.
Measurement Measure(std::size_t threads, Deadline deadline);

}  // namespace layercast::cli
