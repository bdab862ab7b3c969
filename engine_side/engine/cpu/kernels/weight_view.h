// Reads a weight of any kernel format as fp32, from where the engine captured it. Pure functions; thread-safe.
// Torch-free.
#pragma once

#include <cstddef>
#include <vector>

#include "layercast/dtype.h"

namespace layercast {

// One scale for each block of `rows` x `cols` elements, row-major; the last blocks may be partial. Value; memory
// borrowed.
struct ScaleGrid {
  const std::byte* scales = nullptr;  // null: there are none
  DType dtype = DType::kF32;          // f32, f8_e4m3 or f8_e8m0
  std::size_t rows = 1;
  std::size_t cols = 1;               // a multiple of Activations::kPad, or all columns
  const std::byte* global = nullptr;  // one f32 that multiplies every scale; null: none
};

// A weight [rows, cols]: element (r, c) is value * scale(r, c). A vector is a weight of one row. Value; memory
// borrowed.
struct WeightView {
  const std::byte* values = nullptr;  // row-major; two f4 share a byte, the even column in the low half
  DType dtype = DType::kF32;          // f32, bf16, f16, f8_e4m3, i8 or f4
  std::size_t rows = 0;
  std::size_t cols = 0;
  ScaleGrid scale{};
  std::size_t stride = 0;  // elements from one row to the next; 0: as many as there are columns
};

// Reads a row of the weight into values[0, cols), as fp32.
void ReadRow(const WeightView& weight, std::size_t row, float* values);
// Reads a row like ReadRow, followed by zeros up to whole vectors (Activations::Padded).
void ReadPaddedRow(const WeightView& weight, std::size_t row, float* values);
// Reads `count` rows from `first` on in this way, each `stride` floats after the one before it.
void ReadPaddedRows(const WeightView& weight, std::size_t first, std::size_t count, float* values, std::size_t stride);
// Reads a vector, which is a weight of one row.
std::vector<float> ReadVector(const WeightView& weight);

}  // namespace layercast
