#include "tests/simulated_cuda/stream.h"

#include <cstdio>
#include <exception>
#include <set>
#include <utility>

namespace simulated_cuda {
namespace {

struct Streams {
  std::mutex mutex;
  std::set<CUstream_st*> all;  // guarded by mutex
};

Streams& AllStreams() {
  static auto& streams = *new Streams;  // threads may end streams after everything else
  return streams;
}

}  // namespace

void SynchronizeAll(const Context& context) {
  Streams& streams = AllStreams();
  const std::lock_guard lock(streams.mutex);
  for (CUstream_st* const stream : streams.all) {
    if (&stream->context() == &context && !stream->captured()) stream->Synchronize();
  }
}

}  // namespace simulated_cuda

using simulated_cuda::AllStreams;
using simulated_cuda::Work;

CUstream_st::CUstream_st(simulated_cuda::Context& context) : context_(context), thread_([this] { Run(); }) {
  const std::lock_guard lock(AllStreams().mutex);
  AllStreams().all.insert(this);
}

CUstream_st::~CUstream_st() {
  {
    const std::lock_guard lock(AllStreams().mutex);
    AllStreams().all.erase(this);
  }
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CUstream_st::Queue(Work work) {
  {
    const std::lock_guard lock(mutex_);
    if (capture_) return capture_->push_back(std::move(work));
    queue_.push_back(std::move(work));
    ++queued_;
  }
  changed_.notify_all();
}

void CUstream_st::Synchronize() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this, until = queued_] { return done_ >= until; });
}

bool CUstream_st::captured() {
  const std::lock_guard lock(mutex_);
  return capture_.has_value();
}

void CUstream_st::BeginCapture(cudaStreamCaptureMode mode) {
  const std::lock_guard lock(mutex_);
  capture_.emplace();
  simulated_cuda::CaptureBegins(this, mode);
}

std::optional<std::vector<Work>> CUstream_st::EndCapture() {
  const std::lock_guard lock(mutex_);
  auto captured = std::exchange(capture_, std::nullopt);
  return simulated_cuda::CaptureEnds(this) ? std::move(captured) : std::nullopt;
}

// Work that fails spoils its context, as on a device, and what is queued behind it is not done.
void CUstream_st::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) return;
    const Work work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    try {
      if (context_.failed == cudaSuccess) work();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "simulated CUDA device %d: %s\n", context_.device, error.what());
      context_.failed = cudaErrorLaunchFailure;
    }
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

void CUevent_st::Record(CUstream_st& stream) {
  stream.Queue([progress = progress_, number = ++progress_->recorded] {
    progress->reached = number;
    progress->reached.notify_all();
  });
}

void CUevent_st::Synchronize() const {
  const std::uint64_t until = progress_->recorded;
  for (std::uint64_t reached = progress_->reached; reached < until; reached = progress_->reached) {
    progress_->reached.wait(reached);
  }
}
