// How many bytes may be on their way to one receiver: no more than its link brings in a second or so. So on a slow
// link, which all pieces under way share, something still lands before the receiver takes the publisher for lost
// (Liveness). Value; one thread only. Part of the ucx channel's Receiver.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>

#include "src/transport/channel/reply_plan.h"
#include "src/transport/ucx/wire/ucx_messages.h"

namespace layercast::ucx_channel {

constexpr std::size_t kPiecesUnderWay = 16;  // enough to keep a connection busy; a removal waits for them

class SendWindow {
 public:
  static constexpr std::size_t kLeast = 2 * kInPlaceFrom;
  static constexpr std::size_t kMost = kPiecesUnderWay * kPieceBytes;
  static constexpr std::chrono::milliseconds kGrowBelow{400};  // several round trips of any network
  static constexpr std::chrono::milliseconds kShrinkAbove{800};

  bool HasRoom() const { return under_way_ < bytes_; }
  // How long the next piece may be.
  std::size_t piece_bytes() const { return std::clamp(bytes_ / kPiecesUnderWay, kInPlaceFrom, kPieceBytes); }

  void Sent(std::size_t bytes) { under_way_ += bytes; }
  // To be called when a piece has come, `took` after it was sent. If that was soon, the window grows towards what would
  // come within kGrowBelow, by at most eight times the piece. If it was late, the window shrinks by half the piece, so
  // that a whole window of late pieces halves it.
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
