// What a decode step is asked to compute. Torch-free.
#pragma once

#include <cstdint>

namespace layercast {

// What every call of a step has the same of. Value.
struct StepShape {
  std::int64_t rows = 1;        // tokens that it computes at most
  std::int64_t slots = 1;       // sequences that the cache holds
  std::int64_t max_tokens = 0;  // of a sequence; 0: as many as the model allows
};

// One token: it sees what its slot holds of the positions before it, of earlier steps or of rows in the same one
// (where layers are recurrent, of earlier steps alone). A slot is given to another sequence by beginning at position 0
// again. Value.
struct DecodeRow {
  std::int64_t slot = 0;
  std::int64_t position = 0;
  std::int32_t token = 0;
};

}  // namespace layercast
