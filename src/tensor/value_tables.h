// The values of element types of few bits, by their codes: exact for subnormals and NaN, and one load each. Used where
// quantized weights and their scales are read.
#pragma once

#include <array>

namespace layercast {

// Value.
struct ValueTables {
  std::array<float, 256> f8_e4m3;
  std::array<float, 256> f8_e8m0;
  std::array<float, 16> f4;
};

// Made on first use; immutable, so thread-safe.
const ValueTables& GetValueTables();

}  // namespace layercast
