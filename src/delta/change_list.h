// What changed between two versions of a tensor, in memory: a bit per element, and the steps of those that changed.
// Made by comparing versions or from frames, and packed into frames (pack_changes.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "src/delta/step_list.h"

namespace layercast {

// Value.
struct ChangeList {
  std::size_t elements = 0;
  std::size_t element_bytes = 0;
  std::vector<std::uint64_t> words;  // NumWords(elements)
  StepList steps;

  std::size_t changed() const { return steps.codes.size(); }
};

}  // namespace layercast
