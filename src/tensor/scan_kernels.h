// The vector loops behind scan.cc, compiled for every instruction set of the machine's family and chosen at run time.
#pragma once

#include <cstdint>
#include <span>

#include "src/tensor/scan.h"

namespace layercast {

// For each row, the largest `bits & ~sign` of its elements, which are f8_e4m3, then bf16 or f16, then f32. As the
// formats order them, NaN > infinity > every finite value, so one maximum tells magnitude and finiteness.
void RowMaxBits8(const MatrixView& matrix, std::span<std::uint32_t> max_bits);
void RowMaxBits16(const MatrixView& matrix, std::span<std::uint32_t> max_bits);
void RowMaxBits32(const MatrixView& matrix, std::span<std::uint32_t> max_bits);

}  // namespace layercast
