#include "layercast/model/moe.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "engine_side/model/tree/fit.h"
#include "layercast/error.h"

namespace layercast {
LocalExperts LocalExperts::Of(const ParallelConfig& parallel, std::int64_t num_experts) {
  CheckParallel(parallel);
  if (num_experts < 1) {
    throw Error(ErrorCode::kInvalidArgument, "num_experts: expected at least 1, got " + std::to_string(num_experts));
  }
  const std::int64_t ranks = parallel.ep_size;
  const std::int64_t rank = parallel.ep_rank;
  const std::int64_t each = num_experts / ranks;
  const std::int64_t more = num_experts % ranks;
  const std::int64_t count = each + (rank < more ? 1 : 0);
  if (parallel.expert_placement == ExpertPlacement::kRoundRobin) return {rank, ranks, count};
  return {rank * each + std::min(rank, more), 1, count};
}

std::optional<std::int64_t> LocalExperts::LocalOf(std::int64_t expert) const {
  const std::int64_t local = (expert - first) / step;
  if (expert < first || local >= count || first + local * step != expert) return std::nullopt;
  return local;
}

ExpertRouter::ExpertRouter(const LayerContext& context, std::int64_t hidden_size, std::int64_t num_experts,
                           const RouterOptions& options)
    : Module("ExpertRouter") {
  const DType dtype = options.fp32_weight ? DType::kF32 : context.dtype;
  AddParameter({{"weight", dtype, {num_experts, hidden_size}}, ShardAxis::kNone, false, {}});
  if (options.bias) AddParameter({{"bias", context.dtype, {num_experts}}, ShardAxis::kNone, false, {}});
  if (!options.correction_bias) return;
  AddParameter({{"e_score_correction_bias", DType::kF32, {num_experts}}, ShardAxis::kNone, false, {}});
}

}  // namespace layercast
