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
#include <utility>
#include <vector>

#include "tests/simulated_cuda/simulated_context.h"

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

// What cudaStream_t points to. Resource; thread-safe. Its thread is the second owner: it does what is queued, also when
// the stream has been destroyed.
struct CUstream_st {
  enum class Does { kUnlessFailed, kAlways };

  static cudaStream_t Make(simulated_cuda::Context& context);
  static void Destroy(cudaStream_t stream);
  explicit CUstream_st(simulated_cuda::Context& context) : context_(context) {}
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;

  simulated_cuda::Context& context() const { return context_; }
  // Notes it down only, while the stream is captured. After a failure of its context a stream does nothing but what is
  // to be done always.
  void Queue(simulated_cuda::Work work, Does does = Does::kUnlessFailed);
  void Synchronize();

  bool captured();
  void BeginCapture(cudaStreamCaptureMode mode);
  std::optional<std::vector<simulated_cuda::Work>> EndCapture();  // empty if it was broken off

 private:
  struct Queued {
    simulated_cuda::Work work;
    Does does;
  };

  void Run();
  void Do(const Queued& next);

  simulated_cuda::Context& context_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Queued> queue_;  // guarded by mutex_, as are the next four
  std::uint64_t queued_ = 0;
  std::uint64_t done_ = 0;
  bool ends_ = false;
  std::optional<std::vector<simulated_cuda::Work>> capture_;
};

// What cudaEvent_t points to. Resource; thread-safe.
struct CUevent_st {
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
