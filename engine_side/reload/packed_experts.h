// Experts of a checkpoint in MXFP4, as GPT-OSS's are published: all of a kind in one tensor of blocks, and one of
// scales. They are served as they are, or unpacked, one at a time. Used where quantized checkpoints are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layercast/model/quantizable_layer.h"
#include "layercast/tensor.h"
#include "layercast/weights_iterator.h"
#include "src/base/worker_pool.h"

namespace layercast {

// `NAME_blocks` u8 [experts, rows, cols / 32, 16], two e2m1 codes in a byte, the even column's in its low half, and
// `NAME_scales` u8 [experts, rows, cols / 32], e8m0. Value.
struct PackedExperts {
  QuantizableLayer* layer = nullptr;     // the tree's
  std::string path;                      // of it
  bool unpacked = false;                 // not served as they are
  std::uint32_t blocks = 0, scales = 0;  // indices of the tensors
  std::string name;                      // of the blocks
  DType dtype = DType::kBF16;            // of the model
  std::int64_t count = 0, rows = 0, cols = 0;

  // One of them, unpacked: "experts.3.gate_up_proj_blocks" [rows, cols].
  TensorSpec Unpacked(std::int64_t expert) const;
};

// Those among `specs` that a layer of `model` takes. Throws kInvalidArgument naming layer and tensor where scales are
// missing or of another shape.
std::vector<PackedExperts> FindPackedExperts(Module& model, std::span<const TensorSpec> specs);

// One expert's value * scale, rounded to the dtype of `experts`, into `values`: whole, whatever part of it this rank
// keeps, because a version's digest and the largest magnitudes that recipes ask for are of whole tensors. Throws
// kCorrupt, naming it, for a scale that is NaN.
void Unpack(const PackedExperts& experts, std::int64_t expert, const NamedTensor& blocks, const NamedTensor& scales,
            std::byte* values, WorkerPool& pool);

}  // namespace layercast
