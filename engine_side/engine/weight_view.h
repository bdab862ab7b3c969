// A weight where the engine captured it, in any kernel format, and how its rows are read. Values; memory borrowed.
#pragma once

#include <cstddef>
#include <cstdint>

#include "layercast/dtype.h"

namespace layercast {

// One scale for each block of `rows` x `cols` elements, row-major; the last blocks may be partial.
struct ScaleGrid {
  const std::byte* scales = nullptr;  // null: no scales
  DType dtype = DType::kF32;          // f32, f8_e4m3 or f8_e8m0
  std::size_t rows = 1;
  std::size_t cols = 1;
  const std::byte* global = nullptr;  // one f32 that every scale is multiplied by; null: none
};

// [rows, cols]; element (r, c) is value * scale(r, c).
struct WeightView {
  const std::byte* values = nullptr;
  DType dtype =
      DType::kF32;  // f32, bf16, f16, f8_e4m3, i8 or f4; two f4 share a byte, the even column's in its low half
  std::size_t rows = 0;
  std::size_t cols = 0;
  ScaleGrid scale;
};

// values[0, cols) of the weight's row, as fp32. Pure; thread-safe.
void ReadRow(const WeightView& weight, std::size_t row, float* values);

// The same with zeros behind it, up to a multiple of kRowPad values.
inline constexpr std::size_t kRowPad = 16;
void ReadPaddedRow(const WeightView& weight, std::size_t row, float* values);

}  // namespace layercast
