// Weights that are in kernel format already (`is_checkpoint_format = false`): the names, dtypes and shapes of the
// captured buffers, copied straight to staging. What `layercast export` writes.
#pragma once

#include <memory>
#include <string>

#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/staging.h"
#include "layercast/weights_iterator.h"
#include "src/tensor/manifest.h"

namespace layercast {

// `model-rank-{rank}-part-{part}.safetensors` of a folder. Throws kNotFound naming the files that it looked for;
// kInvalidArgument when they were written by another number of ranks.
std::unique_ptr<WeightsIterator> OpenKernelFormat(const std::string& directory, int tp_rank, int tp_size);

// Every kernel tensor exactly once. Throws naming every missing, repeated, unexpected or differently shaped one, and
// any NaN or infinity. Returns the manifest of what was loaded.
Manifest LoadKernelFormat(WeightsIterator& weights, const std::string& lineage, const KernelLayout& layout,
                          const Staging& staging, WorkerPool& pool);

}  // namespace layercast
