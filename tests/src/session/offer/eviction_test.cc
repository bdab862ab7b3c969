// Readers of a version whose memory is needed: they hear why they get no more of it, and hold nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/error_of.h"
#include "tests/support/session/relaying.h"

namespace layercast::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class EvictionTest : public SessionTest, public ::testing::WithParamInterface<std::string> {
 protected:
  EvictionTest() {
    for (std::uint64_t row = 0; row < 300; ++row) {
      schedule_.Add(std::vector<Region>{{.tensor = 2, .offset = 80 * row, .row_bytes = 80, .rows = 1, .stride = 0}});
    }
  }
  Schedule schedule_;  // of far more chunks than are under way at once
};

TEST_P(EvictionTest, EndsAReadThatIsUnderWayWithItsReason) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  PublishedWeights published(*service, weights, "run", 3);
  const auto session = Open(*service, GetParam());
  HookedSink sink;
  sink.before_chunk = [&](std::uint32_t chunk) {
    if (chunk != 0) return;
    service->Withdraw(published.version);
    EXPECT_FALSE(published.version->WaitReleased(Deadline::After(std::chrono::milliseconds(0))));
    service->Expire(published.version);
    EXPECT_TRUE(published.version->WaitReleased(Soon()));  // without a word from its reader
    service->Forget(published.version);
  };
  EXPECT_THAT(
      ErrorOf([&] { session->Fetch(schedule_, {}, sink, Soon()); }, ErrorCode::kNotFound),
      AllOf(HasSubstr(service->endpoint()), HasSubstr("version " + published.version->manifest().version().ToString() +
                                                      " is evicted: its memory is needed for newer ones")));
}

// However the reader hears of it first: over the channel that the bytes are gone, or over the link why.
TEST_P(EvictionTest, EndsAReadThatHasNotBegunWithItsReason) {
  const Weights weights = SomeWeights();
  const auto service = MakeService();
  PublishedWeights published(*service, weights, "run", 3);
  const auto session = Open(*service, GetParam());
  service->Withdraw(published.version);
  service->Expire(published.version);
  EXPECT_TRUE(published.version->WaitReleased(Soon()));
  service->Forget(published.version);
  CollectingSink sink;
  EXPECT_THAT(ErrorOf([&] { session->Fetch(schedule_, {}, sink, Soon()); }, ErrorCode::kNotFound),
              HasSubstr("is evicted"));
}

INSTANTIATE_TEST_SUITE_P(Channels, EvictionTest, ::testing::Values("inproc", "zmq"),
                         [](const auto& channel) { return channel.param; });

}  // namespace
}  // namespace layercast::testing
