// How much goes to a receiver at once, over links that are played: pieces share one, and all of a window land together.
#include "src/transport/ucx/wire/send_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>

#include "src/transport/channel/liveness.h"

namespace layercast::ucx_channel {
namespace {

using std::chrono::duration;
using std::chrono::duration_cast;
using std::chrono::nanoseconds;

// Sends as much as the window takes, and lets all of it land at once, as the slowest order of the link would have it.
// Returns how long that took.
nanoseconds SendOneWindow(SendWindow& window, double bytes_per_second, nanoseconds round_trip) {
  std::deque<std::size_t> pieces;
  std::uint64_t bytes = 0;
  while (window.HasRoom() && pieces.size() < kPiecesUnderWay) {
    pieces.push_back(window.piece_bytes());
    window.Sent(pieces.back());
    bytes += pieces.back();
  }
  const auto took =
      round_trip + duration_cast<nanoseconds>(duration<double>(static_cast<double>(bytes) / bytes_per_second));
  for (const std::size_t piece : pieces) window.Came(piece, took);
  return took;
}

nanoseconds LongestOf(int windows, double bytes_per_second, nanoseconds round_trip) {
  SendWindow window;
  nanoseconds longest{};
  for (int i = 0; i < windows; ++i) longest = std::max(longest, SendOneWindow(window, bytes_per_second, round_trip));
  return longest;
}

TEST(SendWindow, OnASlowLinkSomethingLandsWellWithinTheSilenceThatIsBorne) {
  for (const double rate : {50e3, 100e3, 300e3, 1e6, 4e6, 30e6}) {
    EXPECT_LT(LongestOf(200, rate, std::chrono::milliseconds(50)), Liveness::kLostAfter) << rate;
  }
}

TEST(SendWindow, OnAFastLinkItIsSoonAsWideAsItGets) {
  SendWindow window;
  for (int i = 0; i < 8; ++i) SendOneWindow(window, 3e9, std::chrono::milliseconds(50));
  EXPECT_EQ(window.piece_bytes(), kPieceBytes);
  std::size_t pieces = 0;
  for (; window.HasRoom() && pieces < kPiecesUnderWay; ++pieces) window.Sent(window.piece_bytes());
  EXPECT_EQ(pieces, kPiecesUnderWay);
}

TEST(SendWindow, NarrowsWhereTheLinkBecomesSlow) {
  SendWindow window;
  for (int i = 0; i < 8; ++i) SendOneWindow(window, 3e9, std::chrono::milliseconds(1));
  for (int i = 0; i < 30; ++i) SendOneWindow(window, 100e3, std::chrono::milliseconds(1));
  EXPECT_LT(SendOneWindow(window, 100e3, std::chrono::milliseconds(1)), Liveness::kLostAfter);
}

TEST(SendWindow, ALongWayAloneDoesNotKeepItNarrow) {
  SendWindow window;
  for (int i = 0; i < 8; ++i) SendOneWindow(window, 3e9, std::chrono::milliseconds(300));
  EXPECT_EQ(window.piece_bytes(), kPieceBytes);
}

}  // namespace
}  // namespace layercast::ucx_channel
