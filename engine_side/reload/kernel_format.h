// Weights that are in kernel format already (`is_checkpoint_format = false`): the names, dtypes and shapes of the
// captured buffers, copied straight to the sink. What `layercast export` writes.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/layer_sink.h"
#include "layercast/checkpoint_source.h"
#include "layercast/weights_iterator.h"
#include "src/tensor/manifest.h"

namespace layercast {

// Whether the source holds what `layercast export` writes: it is called `sharded_state`, or is `auto` and rank 0's
// first file is there. Throws kInvalidArgument on secondary sources beside it.
bool IsKernelFormat(const CheckpointSource& source);

// `model-rank-{rank}-part-{part}.safetensors` of a folder. Throws kNotFound naming the files that it looked for;
// kInvalidArgument when they were written by another number of ranks.
std::vector<NamedTensor> OpenKernelFormat(const std::string& directory, int tp_rank, int tp_size);

// Before any byte moves: throws what LoadKernelFormat would.
void CheckKernelFormat(std::span<const TensorSpec> specs, const KernelLayout& layout);

// Every kernel tensor exactly once, each closed in the sink by itself. Throws naming every missing, repeated,
// unexpected or differently shaped one, and any NaN or infinity. Returns the manifest of what was loaded.
Manifest LoadKernelFormat(WeightsIterator& weights, const std::string& lineage, const KernelLayout& layout,
                          LayerSink& sink, WorkerPool& pool);

}  // namespace layercast
