// Frames of changes, in the form that takes the fewest bytes. Used where versions are compared, and where frames are
// folded.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "layercast/version.h"
#include "src/delta/change_list.h"
#include "src/delta/delta_frame.h"

namespace layercast {

// What is known beside the changes. Value; borrows.
struct PackedFor {
  Digest base;
  Digest result;
  std::span<const std::byte> base_bytes;  // empty: not at hand, so no form that needs it
  std::span<const std::byte> next_bytes;
};

std::vector<std::byte> PackChanges(const ChangeList& changes, const PackedFor& known, DeltaEffort effort);
std::vector<std::byte> PackDense(std::span<const std::byte> next, std::size_t element_bytes, const Digest& result,
                                 DeltaEffort effort);

}  // namespace layercast
