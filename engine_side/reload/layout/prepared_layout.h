// What follows from a version's layout alone: which tensors there are, in which shapes and parts. Made by the stager,
// used by the attempts of all versions that have the layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "engine_side/plan/load_plan.h"
#include "engine_side/plan/piece.h"
#include "engine_side/reload/layout/kernel_layout.h"
#include "engine_side/reload/layout/layer_recipes.h"
#include "src/tensor/kernels/axis_amax.h"
#include "src/tensor/manifest/manifest.h"
#include "src/tensor/parts/merged_version.h"

namespace layercast {

// What is made once for a layout of tensors, and replayed for every version that has it. Immutable.
struct PreparedLayout {
  // `of` is the plan that was made for `manifest`. `model_kernel` is the kernel layout of the model in full precision.
  PreparedLayout(LoadPlan of, const Manifest& manifest, const KernelLayout& model_kernel, const LayerRecipes& recipes,
                 std::uint64_t chunk_bytes);

  LoadPlan plan;
  KernelLayout kernel;                                    // KernelLayout::For the plan
  PlannedSchedule snapshot;                               // its chunks gather small tensors
  PlannedSchedule stream;                                 // a chunk is of one tensor; whole tensors are cut by it too
  std::vector<std::vector<std::uint32_t>> stream_chunks;  // by tensor: indices of the stream's chunks
  std::vector<AmaxRequest> amax_requests;                 // of whole tensors; sorted by tensor
  // An amax request as a session sends it. If publishers hold a tensor in parts, each part has a request of its own,
  // which names the part by its number.
  struct PartRequest {
    AmaxRequest request;
    std::uint32_t tensor = 0;  // the tensor that it is a part of
    Box box;                   // of that tensor
  };
  std::vector<PartRequest> part_requests;  // sorted by part number
  // If publishers hold tensors in parts: which tensor a part number belongs to, and which of the tensor's parts it is.
  struct PartPlace {
    std::uint32_t tensor = 0;
    std::size_t part = 0;
  };
  std::map<std::uint32_t, PartPlace> part_places;  // by part number; without empty parts
  std::vector<AmaxRequest> SessionRequests() const;

 private:
  void SayWhenNeeded();
  void ShareRequests(const Manifest& manifest);
};

}  // namespace layercast
