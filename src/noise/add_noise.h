// Noise on one parameter. Used by the install step of an engine (engine_side/reload/noise).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "layercast/dtype.h"
#include "layercast/noise/noise.h"

namespace layercast {

// Which channels of which parameter. Value; borrows the name.
struct NoisyParameter {
  std::string_view name;            // the served one: "model.layers.0.input_layernorm.weight"
  DType dtype = DType::kBF16;       // f32, bf16 or f16
  std::uint64_t first_channel = 0;  // of the whole parameter; a rank may hold a part of it
};

// Adds to channel i the product sigma * n(i) in fp32, where n(i) is number i of the noise's seed (xor the engine's own)
// and the parameter's name (normals.h), rounded to fp32. As in QeRL, the product is rounded to the weight's dtype
// first, and then the sum is. `from` and `to` have the same channels, and may be the same memory. Throws kUnsupported
// on another dtype.
void AddNoise(const Noise& noise, const NoisyParameter& parameter, std::span<const std::byte> from,
              std::span<std::byte> to);

}  // namespace layercast
