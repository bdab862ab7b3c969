// What every layer of a model is built with. Used by model families.
#pragma once

#include <cstdint>

#include "layercast/dtype.h"
#include "layercast/parallel.h"

namespace layercast {

// What a norm multiplies by: its weight (kWeight; kFp32Weight for GPT-OSS and Nemotron-H), or one plus its weight
// (kOnePlusWeight for Gemma and Qwen3-Next). The bytes that are served do not depend on it. kFp32Weight and
// kOnePlusWeight round to the model's dtype once, at the end; kWeight rounds before the multiplication as well.
enum class NormStyle : std::uint8_t { kWeight, kFp32Weight, kOnePlusWeight };

// Value.
struct LayerContext {
  ParallelConfig parallel = {};
  DType dtype = DType::kBF16;
  bool quantize = true;  // whether the engine's recipe applies to linear weights; false for a router
  NormStyle norm = NormStyle::kWeight;

  LayerContext Unquantized() const {
    LayerContext exempt = *this;
    exempt.quantize = false;
    return exempt;
  }
};

}  // namespace layercast
