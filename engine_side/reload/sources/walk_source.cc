#include "engine_side/reload/sources/walk_source.h"

#include <algorithm>

#include "engine_side/reload/prequantized/quantized_layers.h"
#include "engine_side/reload/sources/kernel_taker.h"
#include "engine_side/reload/work/wrong_values.h"
#include "layercast/error.h"
#include "layercast/model/module.h"
#include "src/base/stop_check.h"
#include "src/tensor/kernels/axis_amax.h"
#include "src/tensor/manifest/manifest_entry.h"

namespace layercast {

void TensorTaker::Bring(std::uint32_t tensor, const NamedTensor& named, const TensorSummary& summary) {
  const PreparedLayout& prepared = wanted_.prepared;
  wanted_.sink.OnTensor(tensor, summary.amax, summary.digest);
  const auto asked = std::ranges::lower_bound(prepared.amax_requests, tensor, {}, &AmaxRequest::tensor);
  if (asked != prepared.amax_requests.end() && asked->tensor == tensor) {
    const TensorSpec read = AsRead(wanted_.manifest.entry(tensor).spec, *asked);
    wanted_.sink.OnAxisAmax(tensor, AmaxOver(read, named.tensor.data, asked->kept, pool_));
  }
  const auto bytes = static_cast<std::uint64_t>(named.tensor.num_bytes());
  for (const std::uint32_t chunk : prepared.stream_chunks[tensor]) {
    views_.clear();
    for (const Region& region : wanted_.schedule.RegionsOf(wanted_.schedule.chunks()[chunk])) {
      views_.push_back(ViewAt(named.tensor.data, bytes, region));
    }
    wanted_.sink.OnChunk(chunk, views_);
  }
}

void CheckpointTaker::Take(const NamedTensor& named) {
  const std::int64_t found = wanted_.manifest.Find(named.name);
  if (found < 0) return TakeUndeclared(named);
  const auto tensor = static_cast<std::uint32_t>(found);
  CheckTakes(tensor, named);
  const TensorSummary summary = SummaryOf(named.name, named.tensor, pool_);
  CheckWholeTensor(wanted_.prepared.plan, tensor, named, summary.amax);
  Bring(tensor, named, summary);
}

// Takes a tensor that the manifest does not have. That is harmless if the tensor is one that models compute and do not
// load.
void CheckpointTaker::TakeUndeclared(const NamedTensor& named) const {
  const auto parts = model_.ResolveSource({named.name, named.tensor.dtype, named.tensor.shape});
  if (std::ranges::none_of(parts, [](const auto& part) { return part.to.skip_rule.empty(); })) return;
  throw Error(ErrorCode::kInvalidArgument,
              "'" + named.name + "' is not among the tensors that this reload was begun with");
}

void CheckpointTaker::CheckTakes(std::uint32_t tensor, const NamedTensor& named) {
  const TensorSpec& spec = wanted_.manifest.entry(tensor).spec;
  if (named.tensor.dtype != spec.dtype || named.tensor.shape != spec.shape) {
    throw Error(ErrorCode::kInvalidArgument, "'" + spec.name + "' expected " + Describe(spec) + ", got " +
                                                 Describe(named.tensor.dtype, named.tensor.shape));
  }
  CheckReadable(spec.name, named.tensor);
  if (taken_[tensor]) throw Error(ErrorCode::kInvalidArgument, "'" + named.name + "' came twice in one reload");
  taken_[tensor] = true;
}

std::unique_ptr<TensorTaker> MakeTaker(VersionSource::Form form, const SourceContext& context, const Wanted& wanted) {
  if (form != VersionSource::Form::kKernel) {
    return std::make_unique<CheckpointTaker>(wanted, context.model, context.pool);
  }
  TakeInFullPrecision(context.model);
  return std::make_unique<KernelTaker>(wanted, *context.layout, LoadPlan::WithoutTensors(context.model),
                                       context.recipes, context.layer_memory, context.pool);
}

void WalkSource::Receive(const SourceContext& context, const Wanted& wanted) {
  const std::unique_ptr<TensorTaker> taker = MakeTaker(form(), context, wanted);
  const std::unique_ptr<WeightsIterator> weights = Walk(context, wanted.prepared.plan);
  for (;;) {
    ThrowIfStopped(context.stop, "taking tensors");
    const std::optional<NamedTensor> tensor = weights->Next();
    if (!tensor) break;
    taker->Take(*tensor);
  }
  taker->Finish();
}

}  // namespace layercast
