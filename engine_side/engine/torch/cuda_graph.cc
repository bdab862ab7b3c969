#include "engine_side/engine/torch/cuda_graph.h"

#include <ATen/cuda/CUDAGraph.h>

namespace layercast {

struct CudaGraph::Impl {
  at::cuda::CUDAGraph graph;
};

CudaGraph::CudaGraph(const std::function<void()>& queue) : impl_(std::make_unique<Impl>()) {
  // Other threads of the engine may allocate meanwhile: the mode forbids it to this one alone.
  impl_->graph.capture_begin({0, 0}, cudaStreamCaptureModeThreadLocal);
  queue();
  impl_->graph.capture_end();
}

CudaGraph::~CudaGraph() = default;

void CudaGraph::Replay() { impl_->graph.replay(); }

}  // namespace layercast
