// Experts that a checkpoint holds in MXFP4, as GPT-OSS's are published: all experts' weights of a kind in one tensor of
// blocks and one of scales. They are served as they are, or unpacked, one at a time. Used where quantized layers are
// found, and by QuantizedCheckpoint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "layercast/model/quantizable_layer.h"
#include "layercast/tensor.h"
#include "layercast/weights_iterator.h"
#include "src/base/threads/worker_pool.h"

namespace layercast {

// `NAME_blocks` is u8 [experts, rows, cols / 32, 16]: two e2m1 codes in a byte, with the even column's in its low half.
// `NAME_scales` is u8 [experts, rows, cols / 32], e8m0. Value; borrows the layer.
struct PackedExperts {
  QuantizableLayer* layer = nullptr;     // belongs to the module tree
  std::string path;                      // the layer's
  bool unpacked = false;                 // they are unpacked, instead of served as they are
  std::uint32_t blocks = 0, scales = 0;  // indices of the tensors
  std::string name;                      // of the tensor of blocks
  DType dtype = DType::kBF16;            // of the model
  std::int64_t count = 0, rows = 0, cols = 0;

  // The spec of one expert, unpacked: "experts.3.gate_up_proj_blocks" [rows, cols].
  TensorSpec Unpacked(std::int64_t expert) const;
};

// Finds the packed experts among `specs` that a layer of `model` takes. Throws kInvalidArgument, naming layer and
// tensor, if scales are missing or have another shape.
std::vector<PackedExperts> FindPackedExperts(Module& model, std::span<const TensorSpec> specs);

// Writes value * scale for one expert, rounded to the dtype of `experts`, to `values`. The expert is unpacked whole,
// whatever part of it this rank keeps, because a version's digest and the largest magnitudes that recipes ask for are
// of whole tensors. Throws kCorrupt, naming the scales' tensor, if a scale is NaN.
void Unpack(const PackedExperts& experts, std::int64_t expert, const NamedTensor& blocks, const NamedTensor& scales,
            std::byte* values, WorkerPool& pool);

}  // namespace layercast
