// What every layer of a model is built with. Value.
#pragma once

#include <cstdint>

#include "layercast/dtype.h"
#include "layercast/parallel.h"

namespace layercast {

// What a norm multiplies by: its weight, or (Gemma, Qwen3-Next) one plus its weight. Stored bytes are the same.
// kFp32Weight (GPT-OSS, Nemotron-H) and kOnePlusWeight round to the model's dtype once, kWeight also before it
// multiplies.
enum class NormStyle : std::uint8_t { kWeight, kFp32Weight, kOnePlusWeight };

struct LayerContext {
  ParallelConfig parallel = {};
  DType dtype = DType::kBF16;
  bool quantize = true;  // linear weights take the engine's recipe; false for a router
  NormStyle norm = NormStyle::kWeight;

  LayerContext Unquantized() const {
    LayerContext exempt = *this;
    exempt.quantize = false;
    return exempt;
  }
};

}  // namespace layercast
