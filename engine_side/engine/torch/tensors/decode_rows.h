// What a decode step is asked to compute. Torch-free.
#pragma once

#include <cstdint>

#include "layercast/memory.h"

namespace layercast {

// The sizes that are the same in every call of a step. Value.
struct StepShape {
  std::int64_t rows = 1;             // the most tokens that a step computes
  std::int64_t slots = 1;            // how many sequences the cache holds
  std::int64_t max_tokens = 0;       // the most of a sequence; 0: as many as the model allows
  MemoryResource* caches = nullptr;  // zeroed memory for what sequences leave behind; null: torch's own
};

// One token. It sees what its slot holds at the positions before it, from earlier steps or from rows of the same step
// (with recurrent layers, from earlier steps only). A slot is given to another sequence by starting again at position
// 0. Value.
struct DecodeRow {
  std::int64_t slot = 0;
  std::int64_t position = 0;
  std::int32_t token = 0;
  std::int32_t adapter = -1;  // the adapter slot; -1: none
};

}  // namespace layercast
