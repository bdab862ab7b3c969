// Weights that are in kernel format already (`is_checkpoint_format = false`): they have the names, dtypes and shapes of
// the captured buffers, and are checked and copied as they are. Used by the sources of such weights.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/pipeline/derived_check.h"
#include "engine_side/reload/sources/walk_source.h"
#include "src/tensor/manifest/manifest.h"

namespace layercast {

// Ticks off kernel tensors as they come, and remembers everything that is wrong. Value; the layout outlives it.
class AwaitedTensors {
 public:
  explicit AwaitedTensors(const KernelLayout& layout);

  // The kernel tensor with this spec, which is then no longer awaited. Null if anything was wrong by now.
  const KernelTensor* Take(const TensorSpec& spec);
  // Throws, counting the tensors that are missing, repeated, unexpected or of another shape and naming five of each.
  void CheckAllCame() const;

 private:
  std::map<std::string_view, const KernelTensor*> awaited_;
  std::vector<std::string> misfits_;
  std::vector<std::string> unexpected_;
};

std::vector<TensorSpec> SpecsOf(const KernelLayout& layout);

// A manifest of these tensors, of step 0. Throws what AwaitedTensors does unless they are those of the layout.
Manifest KernelManifest(const std::string& lineage, std::span<const TensorSpec> specs, const KernelLayout& layout);

// Takes every kernel tensor once, and checks that derived tensors are what the parameters beside them make. If any
// tensor is not of the layout, Finish says so, and names all of them; those after the first are not brought. Throws
// kCorrupt on NaN or infinity and on a scale that cannot be right, before the tensor is brought.
class KernelTaker final : public TensorTaker {
 public:
  // `layout` is that of `plan`, the model's in full precision. `memory` must be host memory.
  KernelTaker(const Wanted& wanted, const KernelLayout& layout, LoadPlan plan, const LayerRecipes& recipes,
              MemoryResource& memory, WorkerPool& pool)
      : TensorTaker(wanted, pool),
        awaited_(layout),
        plan_(std::move(plan)),
        derived_(plan_, layout, recipes, memory, pool) {}
  void Take(const NamedTensor& named) override;
  void Finish() override { awaited_.CheckAllCame(); }

 private:
  AwaitedTensors awaited_;
  const LoadPlan plan_;
  DerivedCheck derived_;
};

}  // namespace layercast
