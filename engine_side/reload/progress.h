// Wrappers around what takes chunks from a session, and around a walk over files. They report how many bytes of a
// version have come, and throw once the attempt is given up. Used by the stager and PeerSession, for
// ReceiverOptions::on_progress and Receiver::Cancel.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <utility>

#include "layercast/weights_iterator.h"
#include "src/base/stop_check.h"
#include "src/session/fetch_sink.h"

namespace layercast {

// Called with the bytes that have come and with their total. May be empty.
using SayProgress = std::function<void(std::uint64_t bytes, std::uint64_t bytes_total)>;

// Resource; one thread only. What it borrows must outlive it.
class WatchedSink final : public FetchSink {
 public:
  WatchedSink(FetchSink& sink, std::uint64_t total, const SayProgress& say, std::stop_token stop)
      : sink_(sink), total_(total), say_(say), stop_(std::move(stop)) {}

  void OnTensor(std::uint32_t tensor, float amax, const Digest& digest) override {
    sink_.OnTensor(tensor, amax, digest);
  }
  void OnAxisAmax(std::uint32_t tensor, std::span<const float> amax) override { sink_.OnAxisAmax(tensor, amax); }
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override {
    for (const RegionView& region : regions) bytes_ += region.num_bytes();
    if (say_) say_(bytes_, total_);
    ThrowIfStopped(stop_, "taking chunk " + std::to_string(chunk));
    sink_.OnChunk(chunk, regions);
  }

 private:
  FetchSink& sink_;
  const std::uint64_t total_;
  const SayProgress& say_;
  const std::stop_token stop_;
  std::uint64_t bytes_ = 0;
};

// Resource; one thread only. A tensor counts when the next one is asked for, because then it has been taken. Progress
// is reported once for each percent, as tensors may be many.
class WatchedWalk final : public WeightsIterator {
 public:
  WatchedWalk(std::unique_ptr<WeightsIterator> walk, std::uint64_t total, SayProgress say, std::stop_token stop = {})
      : walk_(std::move(walk)), total_(total), say_(std::move(say)), stop_(std::move(stop)) {}

  std::optional<NamedTensor> Next() override {
    const std::uint64_t percent = total_ == 0 ? 0 : bytes_ * 100 / total_;
    if (say_ && std::exchange(percent_, percent) != percent) say_(bytes_, total_);
    ThrowIfStopped(stop_, "taking tensors");
    std::optional<NamedTensor> tensor = walk_->Next();
    if (tensor) bytes_ += static_cast<std::uint64_t>(tensor->tensor.num_bytes());
    return tensor;
  }

 private:
  const std::unique_ptr<WeightsIterator> walk_;
  const std::uint64_t total_;
  const SayProgress say_;
  const std::stop_token stop_;
  std::uint64_t bytes_ = 0;    // of all tensors that were returned
  std::uint64_t percent_ = 0;  // that was reported last
};

}  // namespace layercast
