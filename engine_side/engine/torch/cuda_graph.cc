#include "engine_side/engine/torch/cuda_graph.h"

#include <ATen/cuda/CUDAGraph.h>

namespace layercast {
namespace {

// A stream would stay in capture otherwise, and refuse all that is queued there later. What ended the work may have
// ended the capture too: what torch says of that is nobody's news.
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
  // Other threads of the engine may allocate meanwhile: the mode forbids it to this one alone.
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
