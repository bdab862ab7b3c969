#include "src/trace/trace_lane.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/trace/trace_recorder.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using std::chrono::nanoseconds;
using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TraceTime At(std::int64_t ns) { return TraceTime(nanoseconds(ns)); }

// The same spans without a bound.
struct Unbounded {
  void Add(std::int64_t begin, std::int64_t end) {
    busy += end - begin;
    ++count;
  }
  std::int64_t busy = 0;
  std::uint64_t count = 0;
};

TEST(TraceLane, HoldsWhatIsAddedUntilItIsFull) {
  TraceLane lane("receive", TraceKind::kStage, 4);
  lane.Add(At(10), At(15), "chunk 0");
  lane.Add(At(20), At(22));
  EXPECT_THAT(lane.spans(), ElementsAre(TraceSpan{10, 15, 5, 1, "chunk 0", ""}, TraceSpan{20, 22, 2, 1, "", ""}));
}

TEST(TraceLane, MergesNeighboursWhereItIsFullAndSaysHowMany) {
  TraceLane lane("receive", TraceKind::kStage, 2);
  for (int i = 0; i < 4; ++i) lane.Add(At(10 * i), At(10 * i + 1), "chunk " + std::to_string(i));
  EXPECT_THAT(lane.spans(),
              ElementsAre(TraceSpan{0, 11, 2, 2, "chunk 0", "chunk 1"}, TraceSpan{20, 31, 2, 2, "chunk 2", "chunk 3"}));
}

TEST(TraceLane, LosesNothingOfItsSumHoweverMuchIsMerged) {
  for (const int spans : {1, 7, 8, 9, 100, 12'345}) {
    TraceLane lane("receive", TraceKind::kStage, 8);
    Unbounded expected;
    for (int i = 0; i < spans; ++i) {
      lane.Add(At(100 * i), At(100 * i + i % 7));
      expected.Add(100 * i, 100 * i + i % 7);
    }
    EXPECT_EQ(lane.count(), expected.count);
    EXPECT_EQ(lane.busy_ns(), expected.busy);
    EXPECT_THAT(lane.spans(), SizeIs(::testing::Le(8U)));
    EXPECT_EQ(lane.spans().front().begin_ns, 0);
    EXPECT_EQ(lane.spans().back().end_ns, 100 * (spans - 1) + (spans - 1) % 7);
    for (std::size_t i = 1; i < lane.spans().size(); ++i) {  // what was apart stays apart
      EXPECT_LE(lane.spans()[i - 1].end_ns, lane.spans()[i].begin_ns);
    }
  }
}

TEST(TraceLane, KindsComeBackByTheirNames) {
  for (const TraceKind kind : {TraceKind::kCall, TraceKind::kStage, TraceKind::kWait, TraceKind::kChunks,
                               TraceKind::kLayers, TraceKind::kServing}) {
    EXPECT_EQ(TraceKindNamed(TraceKindName(kind)), kind);
  }
  testing::ErrorOf([] { TraceKindNamed("nonsense"); }, ErrorCode::kCorrupt);
}

TEST(TraceRecorder, HandsOutNoLaneWhileItIsOff) {
  TraceRecorder recorder;
  EXPECT_EQ(recorder.Lane("stage", TraceKind::kCall), nullptr);
  EXPECT_EQ(LaneOf(nullptr, "stage", TraceKind::kCall), nullptr);
  { const TraceScope none(recorder.Lane("stage", TraceKind::kCall)); }
  EXPECT_THAT(recorder.Take(), IsEmpty());
}

TEST(TraceRecorder, HasALaneForEachNameAndKindAndForgetsThemWithTheNextSync) {
  TraceRecorder recorder;
  recorder.Begin();
  { const TraceScope span(recorder.Lane("verify", TraceKind::kCall)); }
  EXPECT_EQ(recorder.Lane("verify", TraceKind::kCall), recorder.Lane("verify", TraceKind::kCall));
  EXPECT_NE(recorder.Lane("verify", TraceKind::kCall), recorder.Lane("verify", TraceKind::kStage));
  const std::vector<TraceLane> taken = recorder.Take();
  ASSERT_THAT(taken, SizeIs(1));  // nothing was in the other one
  EXPECT_EQ(taken.front().name(), "verify");
  EXPECT_EQ(taken.front().count(), 1U);
  EXPECT_FALSE(recorder.on());
  recorder.Begin();
  EXPECT_THAT(recorder.Take(), IsEmpty());
}

}  // namespace
}  // namespace layercast
