// Streams, events and graphs: a thread for each stream does what is queued, in order, while the host goes on. What is
// used without having been waited for is then a race, which ThreadSanitizer sees.
#pragma once

#include <driver_types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "tests/simulated_cuda/context.h"

namespace simulated_cuda {

using Work = std::function<void()>;

// How far an event has come. It may lie in memory that other processes map.
struct Progress {
  std::atomic<std::uint64_t> recorded;
  std::atomic<std::uint64_t> reached;

  bool IsReached() const { return reached.load() >= recorded.load(); }
};

// Returns when all streams of the context have done what was queued.
void SynchronizeAll(const Context& context);

}  // namespace simulated_cuda

// What cudaStream_t points to. Resource; thread-safe.
struct CUstream_st {
 public:
  explicit CUstream_st(simulated_cuda::Context& context);
  ~CUstream_st();  // does what is queued
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;

  simulated_cuda::Context& context() const { return context_; }
  void Queue(simulated_cuda::Work work);  // noted down only, while the stream is captured
  void Synchronize();

  bool captured();
  void BeginCapture(cudaStreamCaptureMode mode);
  std::optional<std::vector<simulated_cuda::Work>> EndCapture();  // empty if it was broken off

 private:
  void Run();

  simulated_cuda::Context& context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<simulated_cuda::Work> queue_;  // guarded by mutex_, as are the next four
  std::uint64_t queued_ = 0;
  std::uint64_t done_ = 0;
  bool ends_ = false;
  std::optional<std::vector<simulated_cuda::Work>> capture_;
  std::thread thread_;
};

// What cudaEvent_t points to. Resource; thread-safe.
struct CUevent_st {
 public:
  CUevent_st(simulated_cuda::Context& context, std::shared_ptr<simulated_cuda::Progress> progress, int file)
      : context_(context), progress_(std::move(progress)), file_(file) {}

  simulated_cuda::Context& context() const { return context_; }
  int file() const { return file_; }  // which other processes may map; -1 if it is not for them
  void Record(CUstream_st& stream);
  bool IsReached() const { return progress_->IsReached(); }
  void Synchronize() const;

 private:
  simulated_cuda::Context& context_;
  const std::shared_ptr<simulated_cuda::Progress> progress_;  // second owner: what streams have queued
  const int file_;
};

// What cudaGraph_t and cudaGraphExec_t point to.
struct CUgraph_st {
  std::vector<simulated_cuda::Work> work;
};
struct CUgraphExec_st {
  std::vector<simulated_cuda::Work> work;
};
