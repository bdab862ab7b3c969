// What each parameter of a plan becomes under a recipe, and which captured buffer each kernel tensor ends up in. It is
// made once, and checked against the engine's captured buffers before anything is loaded. Immutable value; copies share
// the tensors.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/reload/layout/layer_recipes.h"
#include "layercast/captured_buffers.h"
#include "layercast/version.h"
#include "layercast/weight_layout.h"

namespace layercast {

struct KernelTensor {
  TensorSpec spec;                      // full kernel name; logical, row-major shape
  CapturedBuffer destination;           // where commit writes it
  std::vector<CapturedBuffer> padding;  // beside the destination: commit writes zeros
  std::size_t num_bytes = 0;            // of spec
  std::uint64_t staging_offset = 0;     // in the staged copy on its kind of device
  Sign sign = Sign::kAny;               // what scales may be; if U8, they are exponents, none NaN
  bool powers_of_two = false;           // scales that the recipe rounds to powers of two
};

class KernelLayout {
 public:
  // `captured` must be as TensorsIn describes it (padded_weights.h). Throws kInvalidArgument, naming every kernel
  // tensor without a captured buffer, every captured buffer that nothing writes, and every dtype or shape that differs.
  KernelLayout(const LoadPlan& plan, const LayerRecipes& recipes, const CapturedBuffers& captured,
               const WeightLayout& weights = {});
  // The same tensors, assigned to the parameters of another plan of the same model. A weight that comes as codes and
  // scales has a parameter for each of them, in the order of the recipe's kernel tensors.
  KernelLayout For(const LoadPlan& plan, const LayerRecipes& recipes) const;

  const std::vector<KernelTensor>& tensors() const { return *tensors_; }  // by layer
  // The indices of tensors() in the order of their names.
  std::span<const std::size_t> by_name() const { return by_name_; }
  std::span<const KernelTensor> TensorsOf(std::uint32_t parameter) const;
  // The tensors of the layer's parameters, then those that derive from them.
  std::span<const KernelTensor> TensorsOf(const PlannedLayer& layer) const;
  std::span<const KernelTensor> DerivedOf(const PlannedLayer& layer) const;
  // The index of one of tensors().
  std::size_t IndexOf(const KernelTensor& tensor) const { return static_cast<std::size_t>(&tensor - tensors_->data()); }
  std::uint64_t staged_bytes() const { return staged_bytes_[0] + staged_bytes_[1]; }
  // The bytes of those whose captured buffers are in that kind of memory.
  std::uint64_t staged_bytes(Device::Kind kind) const { return staged_bytes_[static_cast<std::size_t>(kind)]; }
  std::size_t num_layers() const { return num_layers_; }

 private:
  struct Range {
    std::size_t first, count;
  };
  void FindRanges(const LoadPlan& plan, const LayerRecipes& recipes);

  std::shared_ptr<const std::vector<KernelTensor>>
      tensors_;  // the other owners are copies, and layouts For other plans
  std::vector<std::size_t> by_name_;
  std::vector<Range> ranges_;                    // the tensors of each parameter
  std::array<std::uint64_t, 2> staged_bytes_{};  // by kind of device
  std::size_t num_layers_ = 0;
};

// The digest of a layout's tensors and of where they lie in a staged copy. Memory that outlives a process is used again
// only for the same digest.
Digest DigestOf(const KernelLayout& layout);

// The kernel tensors of one parameter, and of a whole plan, with full names. Tensors that derive from a layer's
// parameters come after those of the parameters.
std::vector<TensorSpec> KernelTensorsOf(const PlannedParameter& parameter, const LayerRecipes& recipes);
std::vector<TensorSpec> KernelTensorsOf(const LoadPlan& plan, const LayerRecipes& recipes);

}  // namespace layercast
