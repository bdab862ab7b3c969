#include "layercast/model/pipeline_stages.h"

#include <algorithm>
#include <cstddef>

#include "engine_side/model/tree/fit.h"
#include "layercast/error.h"

namespace layercast {
namespace {

[[noreturn]] void RefuseStages(const std::string& what) { throw Error(ErrorCode::kInvalidArgument, what); }

std::vector<std::int64_t> EvenPartition(std::int64_t layers, std::int64_t stages) {
  std::vector<std::int64_t> partition(static_cast<std::size_t>(stages), layers / stages);
  // The last stage also computes the head, so the layers that are left over go to other stages, from the one before it
  // to the front.
  for (std::int64_t i = 0; i < layers % stages; ++i) ++partition[static_cast<std::size_t>(stages - 2 - i)];
  return partition;
}

void CheckPartition(const std::vector<std::int64_t>& partition, std::int64_t layers, std::int64_t stages) {
  if (static_cast<std::int64_t>(partition.size()) != stages) {
    RefuseStages("pp_layer_partition: expected a number of layers for each of pp_size " + std::to_string(stages) +
                 " stages, got " + std::to_string(partition.size()));
  }
  std::int64_t sum = 0;
  for (const std::int64_t count : partition) {
    if (count < 1 || count > layers) {
      RefuseStages("pp_layer_partition: expected from 1 to num_hidden_layers " + std::to_string(layers) +
                   " layers on a stage, got " + std::to_string(count));
    }
    sum += count;  // cannot overflow: at most num_hidden_layers summands, each at most that
  }
  if (sum == layers) return;
  RefuseStages("pp_layer_partition: expected num_hidden_layers " + std::to_string(layers) +
               " layers on all stages together, got " + std::to_string(sum));
}

}  // namespace

PipelineStages::PipelineStages(const ParallelConfig& parallel, std::int64_t num_layers) : stage_(parallel.pp_rank) {
  CheckParallel(parallel);
  if (parallel.pp_size > num_layers) {
    RefuseStages("pp_size " + std::to_string(parallel.pp_size) + " exceeds num_hidden_layers " +
                 std::to_string(num_layers) + ": every pipeline stage holds at least one");
  }
  if (parallel.pp_layer_partition.empty()) {
    ends_ = EvenPartition(num_layers, parallel.pp_size);
  } else {
    CheckPartition(parallel.pp_layer_partition, num_layers, parallel.pp_size);
    ends_ = parallel.pp_layer_partition;
  }
  for (std::size_t stage = 1; stage < ends_.size(); ++stage) ends_[stage] += ends_[stage - 1];
}

std::string StageName(int stage) { return "pipeline stage " + std::to_string(stage); }

int PipelineStages::StageOf(std::int64_t layer) const {
  return static_cast<int>(std::ranges::upper_bound(ends_, layer) - ends_.begin());
}

}  // namespace layercast
