// Whether a version should come as deltas of what a receiver has, or dense: what is asked of a publisher for that, and
// the times that are compared. Used by fetch sessions.
#pragma once

#include <cstdint>
#include <string>

#include "layercast/transfer_cost.h"

namespace layercast {

// Of one publisher's part of a version. Value.
struct DeltaTerms {
  DeltaUse use = DeltaUse::kAuto;
  std::uint64_t dense_bytes = 0;
  std::string channel{};  // its name
  double gb_per_s = 0;    // what the channel did when it was chosen; 0: not measured
  bool attaches = false;  // the channel hands out views of the publisher's memory

  // The most bytes that deltas may have to be worth taking; 0: none are, so that the publisher need not be asked.
  std::uint64_t most_bytes() const;
  // Estimates, in milliseconds: bytes over the channel, and for deltas the base that they are applied to. 0: the
  // channel was not measured.
  double dense_ms() const;
  double delta_ms(std::uint64_t bytes) const;
};

}  // namespace layercast
