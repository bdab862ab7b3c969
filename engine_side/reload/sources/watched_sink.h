// Wrappers around what takes chunks from a session, and around a walk over tensors. They say how many bytes of a
// version have come and were taken, and throw once the attempt is given up. Used by the stager and PeerSession, for
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
#include "src/session/fetch/fetch_sink.h"

namespace layercast {

// Called with the bytes that have come.
using SayProgress = std::function<void(std::uint64_t bytes)>;

// Resource; one thread only. What it borrows must outlive it.
class WatchedSink final : public FetchSink {
 public:
  WatchedSink(FetchSink& sink, const SayProgress& say, std::stop_token stop)
      : sink_(sink), say_(say), stop_(std::move(stop)) {}

  void OnTensor(std::uint32_t tensor, float amax, const Digest& digest) override {
    sink_.OnTensor(tensor, amax, digest);
  }
  void OnAxisAmax(std::uint32_t tensor, std::span<const float> amax) override { sink_.OnAxisAmax(tensor, amax); }
  void OnChunk(std::uint32_t chunk, std::span<const RegionView> regions) override {
    ThrowIfStopped(stop_, "taking chunk " + std::to_string(chunk));
    sink_.OnChunk(chunk, regions);
    for (const RegionView& region : regions) bytes_ += region.num_bytes();
    say_(bytes_);
  }

 private:
  FetchSink& sink_;
  const SayProgress& say_;
  const std::stop_token stop_;
  std::uint64_t bytes_ = 0;
};

// Resource; one thread only. A tensor counts when the next one is asked for, because then it has been taken.
class WatchedWalk final : public WeightsIterator {
 public:
  WatchedWalk(std::unique_ptr<WeightsIterator> walk, SayProgress say, std::stop_token stop = {})
      : walk_(std::move(walk)), say_(std::move(say)), stop_(std::move(stop)) {}

  std::optional<NamedTensor> Next() override {
    if (bytes_ != 0) say_(bytes_);
    ThrowIfStopped(stop_, "taking tensors");
    std::optional<NamedTensor> tensor = walk_->Next();
    if (tensor) bytes_ += static_cast<std::uint64_t>(tensor->tensor.num_bytes());
    return tensor;
  }

 private:
  const std::unique_ptr<WeightsIterator> walk_;
  const SayProgress say_;
  const std::stop_token stop_;
  std::uint64_t bytes_ = 0;  // of all tensors that were returned
};

}  // namespace layercast
