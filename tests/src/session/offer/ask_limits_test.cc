// What a receiver may ask of a publisher, and how much of the answer comes in one message.
#include "src/session/offer/ask_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/session/offer/digest_worker.h"
#include "tests/support/error_of.h"

namespace layercast::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kRows = 10'000'000;  // whose magnitudes have 40 MB

// Tensors of narrow rows, and as many bytes as each has rows' worth of them.
Manifest Narrow(std::size_t tensors, std::int64_t columns) {
  std::vector<TensorSpec> specs;
  for (std::size_t i = 0; i < tensors; ++i) specs.push_back({"w" + std::to_string(i), DType::kBF16, {kRows, columns}});
  return Manifest::OfSpecs("run", 3, specs);
}

TEST(AskLimits, TheMagnitudesOfASmallVersionAreBoundedInAll) {
  const std::vector<AmaxRequest> requests = {{0, kKeptRows, 0}, {1, kKeptRows, 1}};
  EXPECT_THAT(ErrorOf([&] { CheckAmaxRequests(requests, Narrow(2, 4)); }, ErrorCode::kResourceExhausted),
              HasSubstr("magnitudes: expected at most 67108864 bytes in all, got 80000000 up to tensor 'w1'"));
  EXPECT_EQ(ErrorOf([&] { CheckAmaxRequests(std::vector{requests[0]}, Narrow(2, 4)); }), "no error");
}

TEST(AskLimits, TheMagnitudesOfALargeVersionMayBeOneInSixtyFourOfItsBytes) {
  const std::vector<AmaxRequest> requests = {{0, kKeptRows, 0}, {1, kKeptRows, 1}};
  EXPECT_EQ(ErrorOf([&] { CheckAmaxRequests(requests, Narrow(2, 128)); }), "no error");
  EXPECT_THAT(ErrorOf([&] { CheckAmaxRequests(requests, Narrow(2, 127)); }), HasSubstr("79375000 bytes in all"));
}

TEST(AskLimits, TheMagnitudesThatOneChunkNeedsAreBounded) {
  const std::vector<AmaxRequest> requests = {{0, kKeptRows, 5}, {1, kKeptRows, 5}};
  EXPECT_THAT(ErrorOf([&] { CheckAmaxRequests(requests, Narrow(2, 128)); }, ErrorCode::kResourceExhausted),
              HasSubstr("expected at most 67108864 bytes for one chunk, got 80000000 up to tensor 'w1'"));
}

TEST(AskLimits, AMessageEndsBeforeTheChunkWhoseMagnitudesWouldBeTooMuchForIt) {
  const Manifest manifest = Narrow(3, 128);
  const std::vector<AmaxRequest> requests = {{0, kKeptRows, 2}, {1, kKeptRows, 4}, {2, kKeptRows, 4}};
  const std::uint64_t each = AmaxBytes(requests[0], manifest);
  EXPECT_EQ(each, 40'000'000U);
  EXPECT_EQ(EndOfMessage(requests, 0, 9, manifest, 3 * each), 9U);
  EXPECT_EQ(EndOfMessage(requests, 0, 9, manifest, 2 * each), 4U);
  EXPECT_EQ(EndOfMessage(requests, 0, 9, manifest, each), 4U);
  EXPECT_EQ(EndOfMessage(requests, 0, 9, manifest, 1), 2U);
  EXPECT_EQ(EndOfMessage(requests, 0, 3, manifest, each), 3U);                     // no more digests are known
  EXPECT_EQ(EndOfMessage(std::span(requests).subspan(1), 4, 9, manifest, 1), 9U);  // one chunk's are not divided
}

}  // namespace
}  // namespace layercast::testing
