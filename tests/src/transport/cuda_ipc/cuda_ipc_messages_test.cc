// The messages of the cuda_ipc channel: what is written is read, what is damaged is refused.
#include "src/transport/cuda_ipc/cuda_ipc_messages.h"

#include <gtest/gtest.h>

#include "layercast/error.h"
#include "tests/support/hex.h"
#include "tests/support/transport/damaged_messages.h"

namespace layercast::cuda_ipc_channel {
namespace {

IpcHandle SomeHandle() {
  IpcHandle handle;
  for (std::size_t i = 0; i < handle.size(); ++i) handle[i] = static_cast<std::byte>(3 * i + 1);
  return handle;
}

TEST(CudaIpcMessages, AreReadAsTheyWereWritten) {
  EXPECT_TRUE(DecodeHello(EncodeHello({kVersion, true})).takes_events);
  EXPECT_FALSE(DecodeHello(EncodeHello({kVersion, false})).takes_events);
  EXPECT_EQ(DecodeHello(EncodeHello({7, false})).version, 7);
  EXPECT_EQ(DecodeWelcome(EncodeWelcome({kVersion, SomeHandle()})).event, SomeHandle());
  EXPECT_EQ(DecodeWelcome(EncodeWelcome({})).event, std::nullopt);
  const Announced segment = DecodeSegment(EncodeSegment({12, std::uint64_t{1} << 40, SomeHandle()}));
  EXPECT_EQ(segment.number, 12U);
  EXPECT_EQ(segment.bytes, std::uint64_t{1} << 40);
  EXPECT_EQ(segment.handle, SomeHandle());
  const std::vector<Place> places = {{1, 2}, {0, 0}, {~0U, ~std::uint64_t{0}}};
  const Granted granted = DecodeGranted(EncodeGranted({17, true, places}));
  EXPECT_EQ(granted.ticket, 17U);
  EXPECT_TRUE(granted.waits);
  EXPECT_EQ(granted.places, places);
  EXPECT_EQ(DecodeDone(EncodeDone(99)), 99U);
  EXPECT_EQ(DecodeGone(EncodeGone(5)), 5U);
}

TEST(CudaIpcMessages, HaveTheirExactBytes) {
  using test::Hex;
  EXPECT_EQ(Hex(EncodeHello({7, true})), "014c434349070001");
  EXPECT_EQ(Hex(EncodeWelcome({kVersion, SomeHandle()})),
            "814c4343490100010104070a0d101316191c1f2225282b2e3134373a3d404346494c4f5255585b5e6164676a6d707376797c7f8285"
            "888b8e9194979a9da0a3a6a9acafb2b5b8bbbe");
  EXPECT_EQ(Hex(EncodeWelcome({})), "814c434349010000");
  EXPECT_EQ(Hex(EncodeSegment({12, std::uint64_t{1} << 40, {}})), "850c000000000000000001000000");
  EXPECT_EQ(Hex(EncodeSegment({12, 34, SomeHandle()})),
            "850c0000002200000000000000010104070a0d101316191c1f2225282b2e3134373a3d404346494c4f5255585b5e6164676a6d7073"
            "76797c7f8285888b8e9194979a9da0a3a6a9acafb2b5b8bbbe");
  EXPECT_EQ(Hex(EncodeGranted({17, true, {{1, 2}, {0, 0}}})),
            "8611000000000000000102000000010000000200000000000000000000000000000000000000");
  EXPECT_EQ(Hex(EncodeDone(99)), "046300000000000000");
  EXPECT_EQ(Hex(EncodeGone(5)), "8705000000");
}

void DecodeAnyOf(std::span<const std::byte> message) {
  switch (static_cast<int>(DecodeKind(message))) {
    case static_cast<int>(Kind::kHello): DecodeHello(message); break;
    case static_cast<int>(Kind::kWelcome): DecodeWelcome(message); break;
    case static_cast<int>(kSegment): DecodeSegment(message); break;
    case static_cast<int>(kGranted): DecodeGranted(message); break;
    case static_cast<int>(kDone): DecodeDone(message); break;
    default: DecodeGone(message);
  }
}

TEST(CudaIpcMessages, DamagedOnesAreRefused) {
  testing::ExpectDamagedOnesAreRefused(
      {EncodeHello({kVersion, true}), EncodeWelcome({kVersion, SomeHandle()}), EncodeWelcome({}),
       EncodeSegment({1, 2, {}}), EncodeSegment({1, 2, SomeHandle()}), EncodeGranted({1, false, {{1, 2}, {3, 4}}}),
       EncodeDone(1), EncodeGone(1)},
      DecodeAnyOf);
}

TEST(CudaIpcMessages, HaveBounds) {
  EXPECT_THROW(DecodeHello(EncodeHello({0, true})), Error);
  EXPECT_THROW(DecodeSegment(EncodeSegment({0, 1, {}})), Error);
  EXPECT_THROW(DecodeSegment(EncodeSegment({1, 0, {}})), Error);
}

}  // namespace
}  // namespace layercast::cuda_ipc_channel
