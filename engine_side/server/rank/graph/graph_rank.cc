#include "engine_side/server/rank/graph/graph_rank.h"

#include <algorithm>
#include <memory>

#include "engine_side/engine/built_in/rope.h"
#include "engine_side/engine/torch/graph_decoder.h"
#include "engine_side/engine/torch/torch_memory.h"

namespace layercast {
namespace {

// The fewest rows of a graph step, so that prompts need few steps even if few sequences run at once.
constexpr std::int64_t kFewestRows = 16;

}  // namespace

int RunGraphRank(const RankOptions& options, const Device& device) {
  const StepShape shape{.rows = std::max(options.max_num_seqs, kFewestRows),
                        .slots = options.max_num_seqs,
                        .max_tokens = options.max_model_len};
  const auto make = [shape](MemoryResource& caches) -> MakeForwardPass {
    StepShape with_caches = shape;
    with_caches.caches = &caches;
    return [with_caches](const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
                         const AdapterSlots* adapters) {
      return std::make_unique<GraphDecoder>(model, parallel, buffers, MakeRope, with_caches, adapters);
    };
  };
  return RunRank(options, RankOnDevice{[device] { return OpenTorchMemory(device); }, make});
}

}  // namespace layercast
