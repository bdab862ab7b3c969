// Changes in two lists. The smaller an element of the base, the likelier a training step changes its bits; so those
// below a threshold have a list of their own, whose gaps count among themselves. Both lists then take fewer bits, and
// reading them takes the base. Used where frames are packed, and where they are applied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "src/delta/change_list.h"
#include "src/delta/delta_body.h"

namespace layercast {

// The threshold that makes positions take the fewest bits; none if two lists do not pay.
std::optional<std::uint32_t> BestThreshold(const ChangeList& changes, std::span<const std::byte> base);

// Value. Of `small` the positions are ranks among the small elements.
struct TwoLists {
  std::vector<std::uint64_t> small_words;
  std::vector<std::uint64_t> other_words;
  StepList small_steps;
  StepList other_steps;
};
TwoLists SplitChanges(const ChangeList& changes, std::span<const std::byte> base, std::uint32_t threshold);

// What a frame of two lists says about this base. Throws kCorrupt if it does not fit the base.
ChangeList JoinLists(const DeltaHeader& header, const DeltaBody& body, std::span<const std::byte> base);

}  // namespace layercast
