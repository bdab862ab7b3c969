// The vector loops that scan.cc uses. They are compiled for every instruction set of the machine's family, and the best
// is chosen at run time.
#pragma once

#include <cstdint>
#include <span>

#include "src/tensor/kernels/scan.h"

namespace layercast {

// For each row, the largest `bits & ~sign` of its elements: f8_e4m3 for the first function, bf16 or f16 for the second,
// f32 for the third. These bits are ordered NaN > infinity > every finite value, so one maximum tells magnitude and
// finiteness.
void RowMaxBits8(const MatrixView& matrix, std::span<std::uint32_t> max_bits);
void RowMaxBits16(const MatrixView& matrix, std::span<std::uint32_t> max_bits);
void RowMaxBits32(const MatrixView& matrix, std::span<std::uint32_t> max_bits);

}  // namespace layercast
