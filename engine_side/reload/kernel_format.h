// Weights that are in kernel format already (`is_checkpoint_format = false`): the names, dtypes and shapes of the
// captured buffers, copied straight to the sink. What `layercast export` writes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/reload/derived_check.h"
#include "engine_side/reload/export_label.h"
#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/layer_sink.h"
#include "engine_side/reload/stage_work.h"
#include "layercast/checkpoint_source.h"
#include "layercast/parallel.h"
#include "layercast/version.h"
#include "layercast/weights_iterator.h"
#include "src/checkpoint/checkpoint.h"
#include "src/tensor/manifest.h"

namespace layercast {

// Whether the source holds what `layercast export` writes: it is called `sharded_state`, or is `auto` and rank 0's
// first file is there. Throws kInvalidArgument on secondary sources beside it.
bool IsKernelFormat(const CheckpointSource& source);

// What rank 0's first file in the folder says that it is of. None: the file is not there, or says nothing, as other
// tools' do; each rank then calls what it reads by its own tensors.
std::optional<Version> ExportedVersion(const std::string& directory);

// A rank's own files of a folder, `model-rank-{rank}-part-{part}.safetensors`. Of the other ranks', the header of one
// is read. Value; immutable.
class KernelFiles {
 public:
  // Reads headers alone. Throws kNotFound naming the file that it looked for; kInvalidArgument where there are more
  // ranks' files, and what ExportLabel says to files of another rank, engine, recipe or version. `recipe`: what
  // LayerRecipes calls it.
  KernelFiles(const std::string& directory, const ParallelConfig& parallel, std::string_view recipe);

  const std::vector<TensorSpec>& specs() const { return specs_; }
  std::uint64_t total_bytes() const { return total_bytes_; }
  // In file order, as Checkpoint reads them.
  std::unique_ptr<WeightsIterator> Weights() const;
  // Of the first file.
  const ExportLabel& label() const { return *label_; }

 private:
  void CheckLabels(const std::string& directory, const ParallelConfig& parallel, std::string_view recipe);

  std::vector<Checkpoint> parts_;
  std::optional<ExportLabel> label_;  // there, once this is made
  std::vector<TensorSpec> specs_;     // of all parts
  std::uint64_t total_bytes_ = 0;
};

// Before any byte moves: throws what LoadKernelFormat would.
void CheckKernelFormat(std::span<const TensorSpec> specs, const KernelLayout& layout);

// Every kernel tensor exactly once, each closed in the sink by itself. Throws naming every missing, repeated,
// unexpected or differently shaped one, any NaN or infinity, a scale that cannot be, and what `derived` refuses.
// Returns the manifest of what was loaded.
Manifest LoadKernelFormat(WeightsIterator& weights, const std::string& lineage, const KernelLayout& layout,
                          DerivedCheck& derived, LayerSink& sink, StageWork& work, WorkerPool& pool);

}  // namespace layercast
