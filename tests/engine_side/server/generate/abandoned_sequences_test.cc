// Sequences whose answers nobody waits for any more, wherever they are: they end, and hold nothing up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <stop_token>

#include "layercast/error.h"
#include "tests/engine_side/server/generate/generator_rig.h"

namespace layercast::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TEST_F(GatedGeneratorTest, ASequenceThatNobodyWaitsForEndsWithTheStepAtHandAndACommitWaitsForItNoLonger) {
  Commit(1);
  std::stop_source abandon;
  auto abandoned = AddAndAwaitAToken(kEndless, abandon.get_token());
  auto commit = std::async(std::launch::async, [this] { Commit(2, PauseMode::kWait); });
  abandon.request_stop();
  gate_->Allow();
  commit.get();
  const Answer ended = Get(abandoned);
  EXPECT_EQ(ended.finish, "aborted");
  EXPECT_THAT(ended.sequence.versions, Each(Step(1)));
}

TEST_F(GatedGeneratorTest, OthersGoOnWhenASequenceIsAbandoned) {
  std::stop_source abandon;
  auto abandoned = AddAndAwaitAToken(kEndless, abandon.get_token());
  auto other = Add({10}, 3);
  abandon.request_stop();
  gate_->Allow(20);
  EXPECT_EQ(Get(abandoned).finish, "aborted");
  EXPECT_THAT(Get(other).sequence.tokens, ElementsAre(11, 12, 13));
}

TEST_F(GatedGeneratorTest, ASequenceThatAPauseHoldsEndsWhenNobodyWaitsForIt) {
  std::stop_source abandon;
  auto abandoned = AddAndAwaitAToken(kEndless, abandon.get_token());
  PauseKeepingSequences();
  auto waiting = Add({10}, 1, {}, abandon.get_token());
  abandon.request_stop();
  EXPECT_EQ(Get(abandoned).finish, "aborted");
  EXPECT_EQ(Get(waiting).finish, "aborted");
}

TEST_F(GatedGeneratorTest, APauseThatNobodyWaitsForEndsBeforeItHolds) {
  auto answer = AddAndAwaitAToken(2);
  std::stop_source abandon;
  abandon.request_stop();
  EXPECT_THAT([&] { generator_->Pause(PauseMode::kWait, std::chrono::hours(1), Soon().OrStop(abandon.get_token())); },
              ThrowsMessage<Error>(HasSubstr("given up before it held")));
  gate_->Allow();
  EXPECT_EQ(Get(answer).finish, "length");
  auto next = Add({10}, 1);
  gate_->Allow();
  EXPECT_EQ(Get(next).finish, "length") << "nothing is paused";
}

TEST_F(FewSequencesTest, OneThatWaitsForItsTurnEndsWhenNobodyWaitsForIt) {
  auto first = AddAndAwaitAToken(kEndless);
  auto second = Add({10}, kEndless);
  std::stop_source abandon;
  auto third = Add({10}, 1, {}, abandon.get_token());
  abandon.request_stop();
  gate_->Allow();  // and no more: it has had no turn
  const Answer ended = Get(third);
  EXPECT_EQ(ended.finish, "aborted");
  EXPECT_THAT(ended.sequence.tokens, IsEmpty());
  gate_->AwaitStep();  // the second one has its turn: a commit aborts those that run, not those that wait
  AbortSequences();
  EXPECT_EQ(Get(first).finish, "aborted");
  EXPECT_EQ(Get(second).finish, "aborted");
}

}  // namespace
}  // namespace layercast::testing
