// Experts of a checkpoint in MXFP4, as GPT-OSS's are published: all of a kind in one tensor of blocks, and one of
// scales. They are read by unpacking them. Used where quantized checkpoints are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layercast/model/module.h"
#include "layercast/tensor.h"
#include "layercast/weights_iterator.h"
#include "src/base/worker_pool.h"

namespace layercast {

// `NAME_blocks` u8 [experts, rows, cols / 32, 16], two e2m1 codes in a byte, the even column's in its low half, and
// `NAME_scales` u8 [experts, rows, cols / 32], e8m0. Value.
struct PackedExperts {
  std::string path;                      // of the layer
  std::uint32_t blocks = 0, scales = 0;  // indices of the tensors
  TensorSpec unpacked;                   // [experts, rows, cols] in the model's dtype, under the blocks' name
};

// Those among `specs` that a layer of `model` takes. Throws kInvalidArgument naming layer and tensor where scales are
// missing or of another shape.
std::vector<PackedExperts> FindPackedExperts(const Module& model, std::span<const TensorSpec> specs);

// value * scale, rounded to the dtype of `experts.unpacked`, into `values`. Throws kCorrupt, naming it, for a scale
// that is NaN.
void Unpack(const PackedExperts& experts, const NamedTensor& blocks, const NamedTensor& scales, std::byte* values,
            WorkerPool& pool);

}  // namespace layercast
