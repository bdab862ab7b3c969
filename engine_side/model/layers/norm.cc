#include "layercast/model/norm.h"

#include <utility>

#include "engine_side/model/tree/fit.h"

namespace layercast {

RMSNorm::RMSNorm(const LayerContext& context, std::int64_t size, double epsilon)
    : RMSNorm("RMSNorm", context, size, ShardAxis::kNone, epsilon) {}

RMSNorm::RMSNorm(std::string class_name, const LayerContext& context, std::int64_t local_size, ShardAxis axis,
                 double epsilon)
    : Module(std::move(class_name)), epsilon_(epsilon), style_(context.norm) {
  AddParameter({{"weight", context.dtype, {local_size}}, axis, false, {}});
}

ParallelRMSNorm::ParallelRMSNorm(const LayerContext& context, std::int64_t size, std::int64_t parts, double epsilon)
    : RMSNorm("ParallelRMSNorm", context, Divide("the size of a norm", size, "its parts", parts), ShardAxis::kRows,
              epsilon),
      size_(size),
      replicas_(Divide("tp_size", context.parallel.tp_size, "the parts of a norm", parts)),
      part_(context.parallel.tp_rank / replicas_) {
  SetFirstChannel(part_ * (size / parts));
}

std::vector<PlacedPiece> ParallelRMSNorm::Place(std::string_view name, std::string_view /*shard_id*/,
                                                const TensorSpec& spec) const {
  const std::uint32_t index = ParameterIndex(name);
  const TensorSpec& local = parameters()[index].spec;
  const std::int64_t count = local.shape[0];
  CheckFits(spec, local.dtype, {size_});
  return {{index, Box::Slice(spec.shape, 0, part_ * count, count), Box::Whole(local.shape), {}}};
}

}  // namespace layercast
