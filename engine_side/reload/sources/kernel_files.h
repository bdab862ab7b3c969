// Files of weights in kernel format (kernel_taker.h), which `layercast export` writes. Used by the source of a path,
// and by whoever asks what a path holds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/reload/layout/export_label.h"
#include "layercast/checkpoint_source.h"
#include "layercast/parallel.h"
#include "layercast/version.h"
#include "layercast/weights_iterator.h"
#include "src/checkpoint/formats/checkpoint.h"

namespace layercast {

// Whether the source holds what `layercast export` writes: its load format is `sharded_state`, or is `auto` and rank
// 0's first file is there. Throws kInvalidArgument if there are secondary sources beside it.
bool IsKernelFormat(const CheckpointSource& source);

// The version that rank 0's first file in the folder names. Empty if the file is not there, or names none, as other
// tools' files do not. Each rank then names what it reads by the rank's own tensors.
std::optional<Version> ExportedVersion(const std::string& directory);

// A rank's own files in a folder, `model-rank-{rank}-part-{part}.safetensors`. Of the other ranks' files, only one
// header is read. Value; immutable.
class KernelFiles {
 public:
  // Reads only headers. `recipe` is the name that LayerRecipes gives. Throws kNotFound, naming the file that it looked
  // for, kInvalidArgument if there are files of more ranks, and what ExportLabel throws for files of another rank,
  // engine, recipe or version.
  KernelFiles(const std::string& directory, const ParallelConfig& parallel, std::string_view recipe);

  const std::vector<TensorSpec>& specs() const { return specs_; }
  // Yields the tensors in file order, as Checkpoint reads them.
  std::unique_ptr<WeightsIterator> Weights() const;
  // The label of the rank's first file.
  const ExportLabel& label() const { return *label_; }

 private:
  void CheckLabels(const std::string& directory, const ParallelConfig& parallel, std::string_view recipe);

  std::vector<Checkpoint> parts_;
  std::optional<ExportLabel> label_;  // always there once this is constructed
  std::vector<TensorSpec> specs_;     // of all parts
};

}  // namespace layercast
