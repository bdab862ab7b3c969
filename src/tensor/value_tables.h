// Tables from codes to values, for element types of few bits: one load each, and exact, subnormals and NaN included.
// Used where quantized weights and their scales are read.
#pragma once

#include <array>

namespace layercast {

// Value.
struct ValueTables {
  std::array<float, 256> f8_e4m3;
  std::array<float, 256> f8_e8m0;
  std::array<float, 16> f4;
};

// The tables are made on first use. They are immutable, so any thread may read them.
const ValueTables& GetValueTables();

}  // namespace layercast
