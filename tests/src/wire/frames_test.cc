#include "src/wire/frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <string_view>

#include "tests/support/hex.h"

namespace layercast::wire {
namespace {

std::vector<std::byte> Some(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

template <std::size_t kCount>
std::array<std::byte, kCount> SomeOf(int first = 1) {
  std::array<std::byte, kCount> bytes;
  for (std::size_t i = 0; i < kCount; ++i) bytes[i] = static_cast<std::byte>(static_cast<std::size_t>(first) + i);
  return bytes;
}

// One of each, with every field away from its default.
std::vector<Frame> Examples() {
  return {
      {1, 7, Hello{1, 2, "engine-0", 3, 1, 4, {"boot", "net", "0", "17@4026"}, "run-17", true, 42}},
      {1, 7,
       Welcome{2,
               "trainer",
               {"boot", "net", "0", "18@4026"},
               "job-7",
               true,
               {{"shm", "@x"}, {"zmq", "tcp://127.0.0.1:1"}},
               Some(20),
               {8, 9},
               Some(5)}},
      {1, 7, Subscribe{{1, 2}, Some(9), {{3, 0b011, 4}, {5, 0b101, 6, {2, 3, 4}}}, true, "tcp://127.0.0.1:5", 6}},
      {1, 7, NeedSchedule{}},
      {1, 7, Subscribed{11, {{1, 2}, {3, 4}}, {{5, {1.5F, 2.5F}}, {6, {}}}}},
      {1, 7, TensorsReady{{{1, 2, 3, 10, 4.5F, {5, 6}, {7.5F}, {{8, 9}}}, {11, 12, 13, 14, 5.5F, {1, 2}, {}, {}}}}},
      {1, 7, TensorDone{9}},
      {1, 7, StreamEnd{2, {3, 4}}},
      {1, 7, Ping{}},
      {1, 7, Pong{}},
      {1, 7, Bye{}},
      {1, 7, Refused{ErrorCode::kCorrupt, "why"}},
      {1, 7, StatusRequest{}},
      {1, 7, StatusAnswer{4711, {{"run-17", 42, {1, 2}, true, 3, 4, 5}}}},
      {1, 7,
       StatusAnswer{
           1, {{"run", 42, {1, 2}, true, 3, 4, 5, 6, 7, "job-7", {{"engine-0", 1, "tcp://a:1", "tcp://b:2", 3, 4}}}}}},
      {1, 7, MoreDigests{{{1, 2}, {3, 4}}, {{5, {1.5F}}}}},
      {1, 7, FetchFrom{"tcp://127.0.0.1:5", 6}},
      {1, 7, RelayLost{"tcp://127.0.0.1:5", 6, "silent"}},
      {1, 7, ChunksReady{7}},
      {1, 7, Progress{1, 2, 3, 4}},
      {1, 7, CostRequest{}},
      {1, 7, ServingCost{1234}},
      {1, 7, VersionsRequest{}},
      {1, 7, VersionsAnswer{3, 4, 5, {{"run", 42, {1, 2}, "job-7", true, 6, 7, 8, 9, true, true, true, 2}}}},
      {1, 7, PinVersion{"run", 42, {1, 2}, true}},
      {1, 7, EvictVersion{"run", 42, {1, 2}}},
      {1, 7, PublishFolder{"/a/b", "auto", "run", 42, "job-7"}},
      {1, 7, PublishedFolder{"run", 42, {1, 2}, 3, 4}},
      {1, 7, Hello{1, 2, "engine-0", 3, 1, 4, {"boot", "net", "0", "17@4026"}, "run-17", true, 42, {1, 2}}},
      {1, 7, AskSigned{SomeOf<32>()}},
      {1, 7, SignedDigests{{SomeOf<32>(3), SomeOf<32>(4)}, SomeOf<32>(5), SomeOf<64>()}},
      {1, 7, OfferedSince{"run", 42, {1, 2}}},
      {1, 7, OfferedVersions{true, true, {{"run", 44, {3, 4}, "job-7"}}, {{"run", 43, {1, 2}, ""}}}},
      {1, 7, HoldVersion{"run", 42, {1, 2}, 5}},
      {1, 7, AskDelta{"run", 42, {1, 2}, {3, 4}, 5}},
      {1, 7, Delta{6, {7, 8}, "why"}},
      {1, 7, SessionTrace{"engine-0/3", "00-ab-cd-01", true, 8, 9, Some(3)}},
  };
}

TEST(Frames, EveryMessageComesBack) {
  std::set<std::size_t> kinds;
  for (const Frame& frame : Examples()) {
    kinds.insert(frame.message.index());
    EXPECT_EQ(Decode(Encode(frame)), frame) << MessageName(frame.message);
  }
  EXPECT_EQ(kinds.size(), std::variant_size_v<Message>);
}

TEST(Frames, OfEveryKindHaveTheirExactBytes) {
  using test::Hex;
  const std::vector<Frame> examples = Examples();
  EXPECT_EQ(Hex(Encode(examples[0])),
            "4c435746010001000700000000000000010002000800656e67696e652d30030000000000000001000000040000000400626f6f7403"
            "006e6574010030070031374034303236060072756e2d3137012a00000000000000");
  EXPECT_EQ(Hex(Encode(examples[1])),
            "4c43574601000200070000000000000002000700747261696e65720400626f6f7403006e657401003007003138403430323605006a"
            "6f622d37010200030073686d0200407803007a6d7111007463703a2f2f3132372e302e302e313a311400000001080f161d242b3239"
            "40474e555c636a71787f86080000000000000009000000000000000500000001080f161d");
  EXPECT_EQ(Hex(Encode(examples[2])),
            "4c435746010003000700000000000000010000000000000002000000000000000900000001080f161d242b32390200000003000000"
            "030400000000050000000506000000030200000000000000030000000000000004000000000000000111007463703a2f2f3132372e"
            "302e302e313a350600000000000000");
  EXPECT_EQ(Hex(Encode(examples[3])), "4c435746010004000700000000000000");
  EXPECT_EQ(Hex(Encode(examples[4])),
            "4c4357460100050007000000000000000b000000000000000200000001000000000000000200000000000000030000000000000004"
            "000000000000000200000005000000020000000000c03f000020400600000000000000");
  EXPECT_EQ(Hex(Encode(examples[5])),
            "4c43574601000600070000000000000002000000"
            "010000000200000003000000000000000a00000000000000000090400500000000000000060000000000000001"
            "0000000000f0400100000008000000000000000900000000000000"
            "0b0000000c0000000d000000000000000e000000000000000000b040010000000000000002000000000000000000000000000000");
  EXPECT_EQ(Hex(Encode(examples[6])), "4c43574601000700070000000000000009000000");
  EXPECT_EQ(Hex(Encode(examples[7])), "4c4357460100080007000000000000000200000003000000000000000400000000000000");
  EXPECT_EQ(Hex(Encode(examples[8])), "4c435746010009000700000000000000");
  EXPECT_EQ(Hex(Encode(examples[9])), "4c43574601000a000700000000000000");
  EXPECT_EQ(Hex(Encode(examples[10])), "4c43574601000b000700000000000000");
  EXPECT_EQ(Hex(Encode(examples[11])), "4c43574601000c0007000000000000000303000000776879");
  EXPECT_EQ(Hex(Encode(examples[12])), "4c43574601000d000700000000000000");
  EXPECT_EQ(Hex(Encode(examples[13])),
            "4c43574601000e000700000000000000671200000000000001000000060072756e2d31372a00000000000000010000000000000002"
            "0000000000000001030000000400000000000000050000000000000001000000000000000000");
  EXPECT_EQ(Hex(Encode(examples[14])),
            "4c43574601000e000700000000000000010000000000000001000000030072756e2a00000000000000010000000000000002000000"
            "000000000103000000040000000000000005000000060000000700000005006a6f622d37010000000800656e67696e652d30010000"
            "0009007463703a2f2f613a3109007463703a2f2f623a3203000000000000000400000000000000");
  EXPECT_EQ(Hex(Encode(examples[15])),
            "4c43574601000f00070000000000000002000000010000000000000002000000000000000300000000000000040000000000000001"
            "00000005000000010000000000c03f");
  EXPECT_EQ(Hex(Encode(examples[16])),
            "4c43574601001000070000000000000011007463703a2f2f3132372e302e302e313a350600000000000000");
  EXPECT_EQ(Hex(Encode(examples[17])),
            "4c43574601001100070000000000000011007463703a2f2f3132372e302e302e313a350600000000000000060073696c656e74");
  EXPECT_EQ(Hex(Encode(examples[18])), "4c43574601001200070000000000000007000000");
  EXPECT_EQ(Hex(Encode(examples[19])),
            "4c4357460100130007000000000000000100000000000000020000000000000003000000000000000400000000000000");
  EXPECT_EQ(Hex(Encode(examples[20])), "4c435746010014000700000000000000");
  EXPECT_EQ(Hex(Encode(examples[21])), "4c435746010015000700000000000000d204000000000000");
  EXPECT_EQ(Hex(Encode(examples[22])), "4c435746010016000700000000000000");
  EXPECT_EQ(Hex(Encode(examples[23])),
            "4c4357460100170007000000000000000300000000000000040000000000000005000000000000000100000003007275"
            "6e2a000000000000000100000000000000020000000000000005006a6f622d3701060000000000000007000000000000"
            "0008000000"
            "090000000000000001010102");
  EXPECT_EQ(Hex(Encode(examples[24])),
            "4c435746010018000700000000000000030072756e2a000000000000000100000000000000020000000000000001");
  EXPECT_EQ(Hex(Encode(examples[25])),
            "4c435746010019000700000000000000030072756e2a0000000000000001000000000000000200000000000000");
  EXPECT_EQ(Hex(Encode(examples[26])),
            "4c43574601001a00070000000000000004002f612f6204006175746f030072756e2a0000000000000005006a6f622d37");
  EXPECT_EQ(
      Hex(Encode(examples[27])),
      "4c43574601001b000700000000000000030072756e2a0000000000000001000000000000000200000000000000030000000400000000"
      "000000");
  EXPECT_EQ(Hex(Encode(examples[28])),
            "4c435746010001000700000000000000010002000800656e67696e652d30030000000000000001000000040000000400626f6f7403"
            "006e6574010030070031374034303236060072756e2d3137022a00000000000000"
            "01000000000000000200000000000000");
  EXPECT_EQ(Hex(Encode(examples[29])),
            "4c43574601001c0007000000000000000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20");
  EXPECT_EQ(Hex(Encode(examples[30])),
            "4c43574601001d00070000000000000002000000030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f20212204"
            "05060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f2021222305060708090a0b0c0d0e0f101112131415161718191a"
            "1b1c1d1e1f20212223240102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b"
            "2c2d2e2f303132333435363738393a3b3c3d3e3f40");
  EXPECT_EQ(Hex(Encode(examples[31])),
            "4c43574601001e000700000000000000030072756e2a0000000000000001000000000000000200000000000000");
  EXPECT_EQ(Hex(Encode(examples[32])),
            "4c43574601001f000700000000000000010101000000030072756e2c0000000000000003000000000000000400000000000000"
            "05006a6f622d3701000000030072756e2b00000000000000010000000000000002000000000000000000");
  EXPECT_EQ(
      Hex(Encode(examples[33])),
      "4c435746010020000700000000000000030072756e2a00000000000000010000000000000002000000000000000500000000000000");
  EXPECT_EQ(Hex(Encode(examples[34])),
            "4c435746010021000700000000000000030072756e2a0000000000000001000000000000000200000000000000"
            "030000000000000004000000000000000500000000000000");
  EXPECT_EQ(Hex(Encode(examples[35])),
            "4c43574601002200070000000000000006000000000000000200000007000000000000000800000000000000"
            "0300776879");
  EXPECT_EQ(
      Hex(Encode(examples[36])),
      "4c4357460100230007000000000000000a00656e67696e652d302f330b0030302d61622d63642d303101080000000000000009000000"
      "000000000300000001080f");
}

TEST(Frames, HaveTheBytesThatFormatMdSays) {
  const std::vector<std::byte> bytes = Encode({1, 0x0102030405060708, TensorDone{0x0A0B0C0D}});
  const unsigned char expected[] = {'L', 'C', 'W', 'F', 1, 0, 7, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0x0D, 0x0C, 0x0B, 0x0A};
  ASSERT_EQ(bytes.size(), sizeof(expected));
  for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_EQ(std::to_integer<unsigned char>(bytes[i]), expected[i]) << i;
}

TEST(Frames, TruncatedAnywhereAreRefused) {
  for (const Frame& frame : Examples()) {
    const std::vector<std::byte> bytes = Encode(frame);
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      EXPECT_THROW(Decode(std::span(bytes).first(length)), Error) << MessageName(frame.message) << " " << length;
    }
  }
}

TEST(Frames, WithBytesLeftOverAreRefused) {
  for (const Frame& frame : Examples()) {
    std::vector<std::byte> bytes = Encode(frame);
    bytes.push_back(std::byte{0});
    EXPECT_THROW(Decode(bytes), Error) << MessageName(frame.message);
  }
}

// A flipped bit is refused, or is another message whose encoding is those bytes: never anything in between.
TEST(Frames, SurviveEverySingleBitFlip) {
  for (const Frame& frame : Examples()) {
    const std::vector<std::byte> good = Encode(frame);
    for (std::size_t bit = 0; bit < good.size() * 8; ++bit) {
      std::vector<std::byte> bytes = good;
      bytes[bit / 8] ^= static_cast<std::byte>(1U << (bit % 8));
      try {
        const Frame decoded = Decode(bytes);
        const bool later_code = std::holds_alternative<Refused>(decoded.message);
        if (!later_code) {
          EXPECT_EQ(Encode(decoded), bytes) << MessageName(frame.message) << " bit " << bit;
        }
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorrupt);
      }
    }
  }
}

TEST(Frames, AWelcomesConfigHasAtMostAMebibyte) {
  Welcome welcome;
  welcome.config.resize(kMaxConfigBytes);
  std::vector<std::byte> bytes = Encode({2, 7, welcome});
  EXPECT_EQ(std::get<Welcome>(Decode(bytes).message).config.size(), kMaxConfigBytes);
  bytes.push_back(std::byte{0});
  bytes[bytes.size() - kMaxConfigBytes - 5] = std::byte{1};  // the length's low byte
  EXPECT_THAT([&] { Decode(bytes); }, ::testing::ThrowsMessage<Error>(
                                          ::testing::HasSubstr("config: expected at most 1048576 bytes, got 1048577")));
}

TEST(Frames, ACountThatLiesIsRefusedBeforeAnythingIsAllocated) {
  std::vector<std::byte> bytes = Encode({2, 7, TensorsReady{{{}}}});
  for (std::size_t i = bytes.size() - 4; i < bytes.size(); ++i) bytes[i] = std::byte{0xFF};
  EXPECT_THAT([&] { Decode(bytes); }, ::testing::ThrowsMessage<Error>(::testing::HasSubstr("do not fit")));
}

}  // namespace
}  // namespace layercast::wire
