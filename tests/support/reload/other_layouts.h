// Checkpoints that lay the rig's tensors out in ways of their own, and the transforms that say so: the same bytes, put
// together element by element. What tests of transforms load.
#pragma once

#include <cstdint>
#include <vector>

#include "layercast/model/source_transforms.h"
#include "tests/support/reload/rig.h"

namespace layercast::testing {

// Row-parallel weights in another shape, and parts that take turns element by element. Of one layer.
SourceTransforms ScatteredTransforms();
Weights Scattered(const Weights& usual);

// Tensors that several layers have parts of: stacks over all decoder layers, and one tensor of a block's attention and
// MLP. They come where the first of their parts was.
SourceTransforms SharedTransforms(std::int64_t layers);
Weights Shared(const Weights& usual);

// What a pipeline stages of them, chunk by chunk in the order of a snapshot.
ServedBytes LoadByPieces(const RigOptions& options, const Weights& weights, bool direct, std::uint64_t chunk_bytes);

// That tests of every recipe go through; under sanitizers, which look for other things, one of them.
inline std::vector<DType> ModelDTypes() {
  return kUnderSanitizer ? std::vector{DType::kBF16} : std::vector{DType::kBF16, DType::kF32};
}

}  // namespace layercast::testing
