#include "src/wire/frames.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace layercast::wire {
namespace {

std::vector<std::byte> Some(std::size_t count) {
  std::vector<std::byte> bytes(count);
  for (std::size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
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
      {1, 7, TensorReady{1, 2, 3, 4.5F, {5, 6}, {7.5F}, {{8, 9}}}},
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
  std::vector<std::byte> bytes = Encode({2, 7, TensorReady{}});
  for (std::size_t i = bytes.size() - 4; i < bytes.size(); ++i) bytes[i] = std::byte{0xFF};
  EXPECT_THAT([&] { Decode(bytes); }, ::testing::ThrowsMessage<Error>(::testing::HasSubstr("do not fit")));
}

}  // namespace
}  // namespace layercast::wire
