// bf16, f16 or f32 rows to FP8 e4m3fn: one pass over memory, written with non-temporal stores. Compiled for every
// instruction set of the machine's family and chosen at run time; the same bytes on each. Used by the recipes; a call
// is one thread's share of a weight.
#pragma once

#include <cstdint>
#include <span>

#include "src/tensor/scan.h"

namespace layercast {

// Each writes `values`, packed rows of source.cols bytes, and returns false where an element is NaN, infinite, or
// larger than a given amax: what was written is garbage then.

// w * (1/s) with one scale; `amax` is what `scale` was made from.
bool ConvertWithScale(const MatrixView& source, float amax, float scale, std::uint8_t* values);

// w / s with one scale per row, made from the row's own amax: while one row is converted the next is scanned.
bool ConvertRows(const MatrixView& source, std::span<float> scales, std::uint8_t* values);

// w / s with one scale per row, made from the amax given for it.
bool ConvertRowsGiven(const MatrixView& source, std::span<const float> amax, std::span<float> scales,
                      std::uint8_t* values);

// w * (1/s) with one scale for each 128 x 128 block; the last blocks may be partial. `scales` is row-major, of
// [ceil(rows / 128), ceil(cols / 128)]. While some blocks are converted the next ones are scanned.
bool ConvertBlocks(const MatrixView& source, bool power_of_two, float* scales, std::uint8_t* values);

}  // namespace layercast
