// A CUDA graph: work that is recorded once and then replayed, behind a header without CUDA or torch. Used by
// DecodeGraph.
#pragma once

#include <functional>
#include <memory>

namespace layercast {

// Owns the graph, and the memory that torch allocated while it was recorded: addresses in it are the same in every
// replay. Resource; one thread only.
class CudaGraph {
 public:
  // Records what `queue` queues on the calling thread's current torch stream, which must not be the default one; none
  // of it runs yet. What it does only the first time (making handles and workspaces, loading kernels) must have been
  // done on that stream before. Throws kUnsupported in a program without CUDA.
  explicit CudaGraph(const std::function<void()>& queue);
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  // Queues the recorded work on the calling thread's current stream.
  void Replay();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace layercast
