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

Token TokenFrom(int first) {
  Token token;
  for (std::size_t i = 0; i < token.size(); ++i) token[i] = static_cast<std::byte>(static_cast<int>(i) + first);
  return token;
}

TEST(CudaIpcMessages, AreReadAsTheyWereWritten) {
  EXPECT_TRUE(Decode<Hello>(Encode(Hello{kVersion, RandomToken(), true})).takes_events);
  EXPECT_FALSE(Decode<Hello>(Encode(Hello{kVersion, RandomToken(), false})).takes_events);
  EXPECT_EQ(Decode<Hello>(Encode(Hello{7, {}, false})).version, 7);
  EXPECT_EQ(Decode<Welcome>(Encode(Welcome{kVersion, SomeHandle()})).event, SomeHandle());
  EXPECT_EQ(Decode<Welcome>(Encode(Welcome{})).event, std::nullopt);
  const Announced segment = Decode<Announced>(Encode(Announced{12, std::uint64_t{1} << 40, SomeHandle()}));
  EXPECT_EQ(segment.number, 12U);
  EXPECT_EQ(segment.bytes, std::uint64_t{1} << 40);
  EXPECT_EQ(segment.handle, SomeHandle());
  const std::vector<Place> places = {{1, 2}, {0, 0}, {~0U, ~std::uint64_t{0}}};
  const Granted granted = Decode<Granted>(Encode(Granted{17, true, places}));
  EXPECT_EQ(granted.ticket, 17U);
  EXPECT_TRUE(granted.waits);
  EXPECT_EQ(granted.places, places);
  EXPECT_EQ(Decode<Done>(Encode(Done{99})).ticket, 99U);
  EXPECT_EQ(Decode<Gone>(Encode(Gone{5})).segment, 5U);
}

TEST(CudaIpcMessages, HaveTheirExactBytes) {
  using test::Hex;
  EXPECT_EQ(Hex(Encode(Hello{7, TokenFrom(1), true})),
            "014c4343490700"
            "0102030405060708090a0b0c0d0e0f10"
            "01");
  EXPECT_EQ(Hex(Encode(Welcome{kVersion, SomeHandle()})),
            "814c4343490200010104070a0d101316191c1f2225282b2e3134373a3d404346494c4f5255585b5e6164676a6d707376797c7f8285"
            "888b8e9194979a9da0a3a6a9acafb2b5b8bbbe");
  EXPECT_EQ(Hex(Encode(Welcome{})), "814c434349020000");
  EXPECT_EQ(Hex(Encode(Announced{12, std::uint64_t{1} << 40, {}})), "850c000000000000000001000000");
  EXPECT_EQ(Hex(Encode(Announced{12, 34, SomeHandle()})),
            "850c0000002200000000000000010104070a0d101316191c1f2225282b2e3134373a3d404346494c4f5255585b5e6164676a6d7073"
            "76797c7f8285888b8e9194979a9da0a3a6a9acafb2b5b8bbbe");
  EXPECT_EQ(Hex(Encode(Granted{17, true, {{1, 2}, {0, 0}}})),
            "8611000000000000000102000000010000000200000000000000000000000000000000000000");
  EXPECT_EQ(Hex(Encode(Done{99})), "046300000000000000");
  EXPECT_EQ(Hex(Encode(Gone{5})), "8705000000");
}

void DecodeAnyOf(std::span<const std::byte> message) {
  switch (static_cast<int>(DecodeKind(message))) {
    case static_cast<int>(Kind::kHello): Decode<Hello>(message); break;
    case static_cast<int>(Kind::kWelcome): Decode<Welcome>(message); break;
    case static_cast<int>(kSegment): Decode<Announced>(message); break;
    case static_cast<int>(kGranted): Decode<Granted>(message); break;
    case static_cast<int>(kDone): Decode<Done>(message); break;
    default: Decode<Gone>(message);
  }
}

TEST(CudaIpcMessages, DamagedOnesAreRefused) {
  testing::ExpectDamagedOnesAreRefused(
      {Encode(Hello{kVersion, RandomToken(), true}), Encode(Welcome{kVersion, SomeHandle()}), Encode(Welcome{}),
       Encode(Announced{1, 2, {}}), Encode(Announced{1, 2, SomeHandle()}), Encode(Granted{1, false, {{1, 2}, {3, 4}}}),
       Encode(Done{1}), Encode(Gone{1})},
      DecodeAnyOf);
}

TEST(CudaIpcMessages, HaveBounds) {
  EXPECT_THROW(Decode<Hello>(Encode(Hello{0, {}, true})), Error);
  EXPECT_THROW(Decode<Announced>(Encode(Announced{0, 1, {}})), Error);
  EXPECT_THROW(Decode<Announced>(Encode(Announced{1, 0, {}})), Error);
}

}  // namespace
}  // namespace layercast::cuda_ipc_channel
