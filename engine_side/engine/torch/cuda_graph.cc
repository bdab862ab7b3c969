#include "engine_side/engine/torch/cuda_graph.h"

#include <ATen/cuda/CUDAGraph.h>

namespace layercast {
namespace {

// Ends the capture after an error, since the stream would otherwise stay in capture and refuse whatever is queued there
// later. The error may have ended the capture already; torch's complaint about that is of no interest.
void EndCaptureQuietly(at::cuda::CUDAGraph& graph) noexcept {
  try {
    graph.capture_end();
  } catch (...) {
  }
}

}  // namespace

struct CudaGraph::Impl {
  at::cuda::CUDAGraph graph;
};

CudaGraph::CudaGraph(const std::function<void()>& queue) : impl_(std::make_unique<Impl>()) {
  // Other threads of the engine may allocate meanwhile: this mode forbids it only to the capturing thread.
  impl_->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  try {
    queue();
  } catch (...) {
    EndCaptureQuietly(impl_->graph);
    throw;
  }
  impl_->graph.capture_end();
}

CudaGraph::~CudaGraph() = default;

void CudaGraph::Replay() { impl_->graph.replay(); }

}  // namespace layercast
