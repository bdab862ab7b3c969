// CudaGraph in a program whose weights are in host memory. One for a GPU links cuda_graph.cc instead.
#include "engine_side/engine/torch/cuda_graph.h"
#include "layercast/error.h"
#include "src/base/check.h"

namespace layercast {

struct CudaGraph::Impl {};

CudaGraph::CudaGraph(const std::function<void()>& /*queue*/) {
  throw Error(ErrorCode::kUnsupported, "CUDA graphs: this program is linked without CUDA");
}

CudaGraph::~CudaGraph() = default;

void CudaGraph::Replay() { LAYERCAST_CHECK(false && "there is no such graph"); }

}  // namespace layercast
