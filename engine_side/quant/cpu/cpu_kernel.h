// What a recipe's kernel is: it turns bf16, f16 or f32 rows into values and scales, in one pass over memory and with
// non-temporal stores. Kernels are compiled for every instruction set of the machine's family, of which one is chosen
// at run time; all give the same bytes. Each is in the file that is named after its recipe, and is declared where the
// recipe's row is (recipe_table.cc). A call does one thread's share of a weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/tensor/kernels/scan.h"

namespace layercast {

// Rows of a weight, of whole blocks if the recipe asks for them, and where values and scales go. Value; borrows.
struct QuantizeJob {
  MatrixView source;
  std::byte* values;  // packed rows
  std::byte* scales;  // of the blocks of these rows, row-major; not for the kernel to write if the weight has one scale
  float amax;         // of the whole weight, where `scale` was made from it
  float scale;        // of the whole weight; never 0
  std::span<const float> row_amax;  // of these rows, where scales are made from it; empty: the rows' own
  bool power_of_two;

  std::uint8_t* codes() const { return reinterpret_cast<std::uint8_t*>(values); }
  std::uint8_t* byte_scales() const { return reinterpret_cast<std::uint8_t*>(scales); }
  float* float_scales() const { return reinterpret_cast<float*>(scales); }
  std::span<float> row_scales() const { return {float_scales(), static_cast<std::size_t>(source.rows)}; }
};

// Returns false if an element is NaN, infinite, or larger than a given amax; what was written is then garbage.
using CpuKernel = bool(const QuantizeJob& job);

}  // namespace layercast
