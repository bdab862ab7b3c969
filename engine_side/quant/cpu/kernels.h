// Kernels that turn bf16, f16 or f32 rows into the values and scales of the recipes, in one pass over memory and with
// non-temporal stores. They are compiled for every instruction set of the machine's family, of which one is chosen at
// run time; all give the same bytes. Each kernel is in the file named after its recipe. Used by the recipes; a call
// does one thread's share of a weight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/tensor/kernels/scan.h"

namespace layercast {

// Each kernel writes `values` as packed rows. It returns false if an element is NaN, infinite, or larger than a given
// amax; what was written is then garbage.

// none. A copy.
bool CopyRows(const MatrixView& source, std::byte* values);

// fp8_per_tensor. w * (1/s) with one scale; `amax` is what `scale` was made from.
bool Fp8WithScale(const MatrixView& source, float amax, float scale, std::uint8_t* values);

// fp8_per_channel. w / s with one scale for each row. Fp8Rows makes it from the row's own amax: while one row is
// encoded, the next is scanned. Fp8RowsGiven makes it from the amax that is given for the row.
bool Fp8Rows(const MatrixView& source, std::span<float> scales, std::uint8_t* values);
bool Fp8RowsGiven(const MatrixView& source, std::span<const float> amax, std::span<float> scales, std::uint8_t* values);

// fp8_per_block. w * (1/s) with one scale for each 128 x 128 block; the last blocks may be partial. `scales` is
// row-major, [ceil(rows / 128), ceil(cols / 128)]. While some blocks are encoded, the next ones are scanned.
bool Fp8Blocks(const MatrixView& source, bool power_of_two, float* scales, std::uint8_t* values);

// int8_per_channel. rint(w / s), with scales as for fp8_per_channel.
bool Int8Rows(const MatrixView& source, std::span<float> scales, std::uint8_t* values);
bool Int8RowsGiven(const MatrixView& source, std::span<const float> amax, std::span<float> scales,
                   std::uint8_t* values);

// mxfp8. One exponent for each 32 columns; cols is a multiple of 32. `scales` is [rows, cols / 32].
bool Mxfp8Blocks(const MatrixView& source, std::uint8_t* scales, std::uint8_t* values);

// mxfp4. One exponent for each 32 columns; cols is a multiple of 32. `scales` is [rows, cols / 32], and `values` is
// [rows, cols / 2].
bool Mxfp4Blocks(const MatrixView& source, std::uint8_t* scales, std::uint8_t* values);

// nvfp4. One e4m3 scale for each 16 columns; cols is a multiple of 16. `scales` is [rows, cols / 16], and `values` is
// [rows, cols / 2]. `amax` is that of the whole weight, and IsZeroNvfp4(amax) must be false.
bool Nvfp4Blocks(const MatrixView& source, float amax, std::uint8_t* scales, std::uint8_t* values);

}  // namespace layercast
