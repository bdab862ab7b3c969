// Codes of a weight that has one scale, brought to a larger one where they lie. RECIPES.md says what is computed;
// cuda/rescale_body.cuh does the same on a device.
#pragma once

#include <cstdint>
#include <span>

#include "src/base/worker_pool.h"

namespace layercast {

// FP8 per tensor: cvt(clamp(code * from * (1/to), -448, 448)); a NaN stays. Nothing where the two scales are equal, and
// zeros where 1/to is infinite, as the recipe has it.
void Rescale(std::span<std::uint8_t> codes, float from, float to, WorkerPool& pool);

// Blocks of NVFP4, 16 codes in eight bytes and an e4m3 scale each, of a weight whose global scale is `from`: quantized
// anew, as the recipe does for a weight of amax 448 * 6 * `to`. Nothing where the two are equal.
void RescaleNvfp4(std::span<std::uint8_t> codes, std::span<std::uint8_t> scales, float from, float to,
                  WorkerPool& pool);

}  // namespace layercast
