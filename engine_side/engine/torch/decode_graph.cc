#include "engine_side/engine/torch/decode_graph.h"

#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <optional>
#include <utility>

#include "engine_side/engine/torch/cuda_graph.h"
#include "engine_side/engine/torch/decode_step.h"

namespace layercast {
namespace {

// The first step makes what libraries set up at first use (handles, workspaces, kernels); the second runs with it.
constexpr int kWarmUpSteps = 2;

// A stream of the device; nullopt for a CPU, which has none.
std::optional<c10::Stream> MakeStream(const at::Device& device) {
  if (!device.is_cuda()) return std::nullopt;
  return c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

}  // namespace

struct DecodeGraph::Impl {
  explicit Impl(const at::Device& device) : stream(MakeStream(device)) {}

  void Replay() { graph ? graph->Replay() : step->Queue(); }

  std::optional<c10::Stream> stream;  // on which the step does everything
  std::optional<DecodeStep> step;
  std::optional<CudaGraph> graph;
};

DecodeGraph::DecodeGraph(const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers,
                         RopeFunction make_rope, const StepShape& shape, Mode mode, const AdapterSlots* adapters)
    : impl_(std::make_unique<Impl>(DecodeStep::DeviceOf(buffers))) {
  const c10::OptionalStreamGuard scope(impl_->stream);
  DecodeStep& step = impl_->step.emplace(model, parallel, buffers, std::move(make_rope), shape, adapters);
  if (!impl_->stream || mode == Mode::kEager) return;
  for (int i = 0; i < kWarmUpSteps; ++i) step.Queue();
  impl_->stream->synchronize();
  impl_->graph.emplace([&] { step.Queue(); });
}

DecodeGraph::~DecodeGraph() = default;

Logits DecodeGraph::Run(std::span<const DecodeRow> rows) {
  const c10::OptionalStreamGuard scope(impl_->stream);
  impl_->step->Put(rows);
  impl_->Replay();
  return impl_->step->Read(rows.size());
}

const StepShape& DecodeGraph::shape() const { return impl_->step->shape(); }
std::size_t DecodeGraph::vocab_size() const { return impl_->step->vocab_size(); }
bool DecodeGraph::is_recurrent() const { return impl_->step->is_recurrent(); }
std::uint64_t DecodeGraph::times_queued() const { return impl_->step->times_queued(); }

}  // namespace layercast
