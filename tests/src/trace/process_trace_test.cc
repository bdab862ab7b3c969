#include "src/trace/process_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "layercast/error.h"
#include "src/trace/trace_context.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using Json = nlohmann::ordered_json;

ProcessTrace Example() {
  return {.name = "rank 1 of engine tcp://a:1",
          .service = "rank",
          .pid = 4711,
          .span = 0xFEDCBA9876543210,
          .parent = 7,
          .clock = "boot/time:[1]",
          .offset = {-5, 30},
          .clock_is_unknown = true,
          .facts = {{"error", "why"}},
          .lanes = {TraceLane("receive", TraceKind::kStage, {{10, 30, 15, 2, "chunk 0", "chunk 1"}, {40, 41, 1, 1}}),
                    TraceLane("layers", TraceKind::kLayers, {{10, 50, 40, 1, "model.norm"}})}};
}

TEST(ProcessTrace, ComesBackFromItsJson) {
  const ProcessTrace trace = Example();
  const ProcessTrace back = ProcessTraceFromJson(Json::parse(ProcessTraceToJson(trace).dump()));
  EXPECT_EQ(ProcessTraceToJson(back).dump(), ProcessTraceToJson(trace).dump());
  EXPECT_EQ(back.span, trace.span);
  ASSERT_EQ(back.lanes.size(), 2U);
  EXPECT_EQ(back.lanes[0].spans(), trace.lanes[0].spans());
  EXPECT_EQ(back.lanes[1].kind(), TraceKind::kLayers);
}

TEST(ProcessTrace, IsRefusedWhereASpanEndsBeforeItBegins) {
  Json json = ProcessTraceToJson(Example());
  json["lanes"][0]["spans"][0][1] = 9;
  testing::ErrorOf([&] { ProcessTraceFromJson(json); }, ErrorCode::kCorrupt);
}

TEST(ProcessTrace, MovesToAnotherClockWithAllThatItHas) {
  ProcessTrace trace = Example();
  trace.MoveBy({100, 12});
  EXPECT_EQ(trace.lanes[0].spans()[0].begin_ns, -90);
  EXPECT_EQ(trace.lanes[0].spans()[0].busy_ns, 15);
  EXPECT_EQ(trace.lanes[1].spans()[0].end_ns, -50);
  EXPECT_EQ(trace.offset, (ClockOffset{95, 42}));  // errors add up
}

TEST(ProcessTrace, OfThisProcessNamesItsClock) {
  const ProcessTrace mine = TraceOfThisProcess("engine", "engine", {});
  EXPECT_EQ(mine.pid, ::getpid());
  EXPECT_EQ(mine.clock, NameOfClock());
}

TEST(TraceClock, TheOffsetIsThatOfTheShortestExchange) {
  // The other clock is 1000 ahead; the way there takes 5, the answer 3, the way back 5, or 45.
  const ClockOffset fair = BetterOffset({}, 0, 1005, 1008, 13);
  EXPECT_EQ(fair, (ClockOffset{1000, 10}));
  const ClockOffset lopsided = BetterOffset({}, 0, 1005, 1008, 53);
  EXPECT_EQ(lopsided, (ClockOffset{980, 50}));  // at most half of the round trip off
  EXPECT_EQ(BetterOffset(lopsided, 0, 1005, 1008, 13), fair);
  EXPECT_EQ(BetterOffset(fair, 0, 1005, 1008, 53), fair);
}

TEST(TraceContext, ComesBackFromItsTraceparent) {
  const std::string text = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  const auto parsed = ParseTraceparent(text);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->TraceHex(), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_EQ(parsed->span, 0xb7ad6b7169203331U);
  EXPECT_EQ(parsed->Traceparent(), text);
}

TEST(TraceContext, RefusesWhatIsNoTraceparent) {
  for (const char* text : {"", "00", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331",
                           "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                           "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                           "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                           "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                           "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
                           "00-0af7651916cd43dd8448eb211c80319g-b7ad6b7169203331-01"}) {
    EXPECT_FALSE(ParseTraceparent(text)) << text;
  }
  // A later version may say more.
  EXPECT_TRUE(ParseTraceparent("01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"));
}

TEST(TraceContext, BothEndsOfASessionDeriveTheSameTraceAndNoOtherSessionsIs) {
  EXPECT_EQ(TraceOfSession("engine-0/3"), TraceOfSession("engine-0/3"));
  EXPECT_NE(TraceOfSession("engine-0/3").TraceHex(), TraceOfSession("engine-0/4").TraceHex());
  EXPECT_NE(NewTrace().TraceHex(), NewTrace().TraceHex());
}

}  // namespace
}  // namespace layercast
