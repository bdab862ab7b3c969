// bf16, f16 or f32 rows to the values and scales of the recipes: one pass over memory, written with non-temporal
// stores. Compiled for every instruction set of the machine's family and chosen at run time; the same bytes on each.
// Used by the recipes; a call is one thread's share of a weight. Each kernel is in the file of its recipe's name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/tensor/scan.h"

namespace layercast {

// Each writes `values`, packed rows, and returns false where an element is NaN, infinite, or larger than a given amax:
// what was written is garbage then.

// none. A copy.
bool CopyRows(const MatrixView& source, std::byte* values);

// fp8_per_tensor. w * (1/s) with one scale; `amax` is what `scale` was made from.
bool Fp8WithScale(const MatrixView& source, float amax, float scale, std::uint8_t* values);

// fp8_per_channel. w / s with one scale per row, made from the row's own amax: while one row is encoded the next is
// scanned. Or made from the amax given for it.
bool Fp8Rows(const MatrixView& source, std::span<float> scales, std::uint8_t* values);
bool Fp8RowsGiven(const MatrixView& source, std::span<const float> amax, std::span<float> scales, std::uint8_t* values);

// fp8_per_block. w * (1/s) with one scale for each 128 x 128 block; the last blocks may be partial. `scales` is
// row-major, of [ceil(rows / 128), ceil(cols / 128)]. While some blocks are encoded the next ones are scanned.
bool Fp8Blocks(const MatrixView& source, bool power_of_two, float* scales, std::uint8_t* values);

// int8_per_channel. rint(w / s), as for fp8_per_channel.
bool Int8Rows(const MatrixView& source, std::span<float> scales, std::uint8_t* values);
bool Int8RowsGiven(const MatrixView& source, std::span<const float> amax, std::span<float> scales,
                   std::uint8_t* values);

// mxfp8. One exponent for each 32 columns; cols is a multiple of 32. `scales` is [rows, cols / 32].
bool Mxfp8Blocks(const MatrixView& source, std::uint8_t* scales, std::uint8_t* values);

// mxfp4. One exponent for each 32 columns; cols is a multiple of 32. `scales` is [rows, cols / 32], `values`
// [rows, cols / 2].
bool Mxfp4Blocks(const MatrixView& source, std::uint8_t* scales, std::uint8_t* values);

// nvfp4. One e4m3 scale for each 16 columns; cols is a multiple of 16. `scales` is [rows, cols / 16], `values`
// [rows, cols / 2]. `amax` is that of the whole weight, for which IsZeroNvfp4 is false.
bool Nvfp4Blocks(const MatrixView& source, float amax, std::uint8_t* scales, std::uint8_t* values);

}  // namespace layercast
