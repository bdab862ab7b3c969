// How many bytes may be on their way to one receiver: what its link brings in a second at most, so that on a slow link
// something lands well within the silence that a receiver bears (Liveness), however many pieces share it. Value; one
// thread only.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "src/transport/reply_plan.h"
#include "src/transport/ucx/messages.h"

namespace layercast::ucx_channel {

constexpr std::size_t kPiecesUnderWay = 16;  // keeps a connection busy, and is what a removal waits for

class SendWindow {
 public:
  static constexpr std::size_t kLeast = 2 * kInPlaceFrom;
  static constexpr std::size_t kMost = kPiecesUnderWay * kPieceBytes;
  static constexpr std::chrono::milliseconds kGrowBelow{400};  // what a piece took: several round trips of any network
  static constexpr std::chrono::milliseconds kShrinkAbove{800};

  bool HasRoom() const { return under_way_ < bytes_; }
  // How long the next piece may be.
  std::size_t piece_bytes() const { return std::clamp(bytes_ / kPiecesUnderWay, kInPlaceFrom, kPieceBytes); }

  void Sent(std::size_t bytes) { under_way_ += bytes; }
  // A piece has come, that long after it was sent. A window that comes soon grows by as much as would still come in
  // that time, but not by more than eight times; one that takes long is halved.
  void Came(std::size_t bytes, std::chrono::nanoseconds took) {
    under_way_ -= bytes;
    const auto fits = static_cast<std::size_t>(kGrowBelow / std::max(took, std::chrono::nanoseconds(1)));
    bytes_ = std::min(bytes_ + bytes * std::min<std::size_t>(fits, 8), kMost);
    if (took > kShrinkAbove) bytes_ = std::max(bytes_ - std::min(bytes_, bytes / 2), kLeast);
  }

 private:
  std::size_t bytes_ = kLeast;
  std::size_t under_way_ = 0;
};

}  // namespace layercast::ucx_channel
