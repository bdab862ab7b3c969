// A CUDA graph: work that is recorded once and replayed, behind a header without CUDA or torch. Used by DecodeGraph.
#pragma once

#include <functional>
#include <memory>

namespace layercast {

// Owns, beside the graph, the memory that torch allocated while it was recorded: addresses in it are the same in every
// replay. Resource; one thread only.
class CudaGraph {
 public:
  // Records what `queue` queues on the calling thread's current torch stream, which is not the default one; nothing of
  // it runs yet. What it does the first time only (handles, workspaces, kernels that are loaded) must have been done
  // on that stream. Throws kUnsupported in a build without CUDA.
  explicit CudaGraph(const std::function<void()>& queue);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Queues it on the current stream.
  void Replay();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
