#include "tests/simulated_cuda/simulated_stream.h"

#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <thread>
#include <utility>

namespace simulated_cuda {
namespace {

struct Streams {
  std::mutex mutex;
  std::map<CUstream_st*, std::shared_ptr<CUstream_st>> all;  // guarded by mutex
};

Streams& AllStreams() {
  static auto& streams = *new Streams;  // threads may end streams after everything else
  return streams;
}

std::vector<std::shared_ptr<CUstream_st>> StreamsOf(const Context& context) {
  std::vector<std::shared_ptr<CUstream_st>> streams;
  const std::lock_guard lock(AllStreams().mutex);
  for (const auto& [_, stream] : AllStreams().all) {
    if (&stream->context() == &context && !stream->captured()) streams.push_back(stream);
  }
  return streams;
}

}  // namespace

void SynchronizeAll(const Context& context) {
  for (const auto& stream : StreamsOf(context)) stream->Synchronize();
}

}  // namespace simulated_cuda

using simulated_cuda::AllStreams;
using simulated_cuda::Work;

cudaStream_t CUstream_st::Make(simulated_cuda::Context& context) {
  const auto stream = std::make_shared<CUstream_st>(context);
  std::thread([stream] { stream->Run(); }).detach();
  const std::lock_guard lock(AllStreams().mutex);
  AllStreams().all[stream.get()] = stream;
  return stream.get();
}

// Does not wait: the thread ends when it has done what is queued.
void CUstream_st::Destroy(cudaStream_t stream) {
  std::shared_ptr<CUstream_st> ended;
  {
    const std::lock_guard lock(AllStreams().mutex);
    ended = std::move(AllStreams().all.extract(stream).mapped());
  }
  if (ended->captured()) static_cast<void>(ended->EndCapture());
  const std::lock_guard lock(ended->mutex_);
  ended->ends_ = true;
  ended->changed_.notify_all();
}

void CUstream_st::Queue(Work work, Does does) {
  const std::lock_guard lock(mutex_);
  if (capture_) return capture_->push_back(std::move(work));
  queue_.push_back({std::move(work), does});
  ++queued_;
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

void CUstream_st::Run() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return ends_ || !queue_.empty(); });
    if (queue_.empty()) return;
    {
      const Queued next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      Do(next);
    }
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

// Work that fails spoils its context, as on a device.
void CUstream_st::Do(const Queued& next) {
  try {
    if (next.does == Does::kAlways || context_.failed == cudaSuccess) next.work();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "simulated CUDA device %d: %s\n", context_.device, error.what());
    context_.failed = cudaErrorLaunchFailure;
  }
}

// An event that was recorded again is reached when the last record is, whatever becomes of those before.
void CUevent_st::Record(CUstream_st& stream) {
  const auto reach = [progress = progress_, number = ++progress_->recorded] {
    std::uint64_t reached = progress->reached;
    while (reached < number && !progress->reached.compare_exchange_weak(reached, number)) {
    }
  };
  stream.Queue(reach, CUstream_st::Does::kAlways);
}

// Looks again and again: another process may have recorded it.
void CUevent_st::Synchronize() const {
  const std::uint64_t until = progress_->recorded;
  while (progress_->reached < until) std::this_thread::sleep_for(std::chrono::microseconds(20));
}
