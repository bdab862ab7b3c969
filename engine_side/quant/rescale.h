// Rescales the codes of a weight that has one scale to a larger one, in place. RECIPES.md says what is computed;
// cuda/rescale_body.cuh does the same on a device.
#pragma once

#include <cstdint>
#include <span>

#include "src/base/threads/worker_pool.h"

namespace layercast {

// FP8 per tensor: cvt(clamp(code * from * (1/to), -448, 448)); a NaN stays NaN. Does nothing if the two scales are
// equal. If 1/to is infinite, all codes become zero, as in the recipe.
void Rescale(std::span<std::uint8_t> codes, float from, float to, WorkerPool& pool);

// Blocks of NVFP4, each of 16 codes in eight bytes with an e4m3 scale, of a weight whose global scale is `from`. They
// are quantized anew, as the recipe quantizes a weight of amax 448 * 6 * `to`. Does nothing if the two scales are
// equal.
void RescaleNvfp4(std::span<std::uint8_t> codes, std::span<std::uint8_t> scales, float from, float to,
                  WorkerPool& pool);

}  // namespace layercast
