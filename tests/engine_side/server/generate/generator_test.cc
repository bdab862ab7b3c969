// Generation and commits on one thread: which version each token comes from, in every pause mode.
#include "engine_side/server/generate/generator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <stdexcept>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/engine_side/server/generate/generator_rig.h"
#include "tests/support/error_of.h"
#include "tests/support/no_more_files.h"

namespace layercast::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;

TEST(PauseModes, AreKnownByName) {
  EXPECT_EQ(PauseModeNamed("wait"), PauseMode::kWait);
  EXPECT_EQ(PauseModeNamed("abort"), PauseMode::kAbort);
  EXPECT_EQ(PauseModeNamed("keep"), PauseMode::kKeep);
  EXPECT_THAT([] { PauseModeNamed("later"); }, ThrowsMessage<Error>(HasSubstr("'later'")));
}

TEST_F(GeneratorTest, EndsASequenceAtItsLengthOrAtAStopToken) {
  Commit(1);
  auto by_length = Add({10}, 3);
  auto by_stop = Add({20}, 100, {22});
  const Answer length = Get(by_length);
  EXPECT_EQ(length.finish, "length");
  EXPECT_THAT(length.sequence.tokens, ElementsAre(11, 12, 13));
  EXPECT_THAT(length.sequence.versions, Each(Step(1)));
  const Answer stop = Get(by_stop);
  EXPECT_EQ(stop.finish, "stop");
  EXPECT_THAT(stop.sequence.tokens, ElementsAre(21, 22));
}

TEST_F(GeneratorTest, AStopTokenThatIsTheLastTokenOfTheLengthIsAStop) {
  auto answer = Add({20}, 2, {99, 22});
  const Answer stop = Get(answer);
  EXPECT_EQ(stop.finish, "stop");
  EXPECT_THAT(stop.sequence.tokens, ElementsAre(21, 22));
}

TEST_F(GeneratorTest, FeedsAPromptOnceAndThenEachToken) {
  auto answer = Add({1, 2, 3, 4}, 4);
  EXPECT_THAT(Get(answer).sequence.logprobs, ElementsAre(4, 1, 1, 1)) << "tokens fed, says the scripted rank";
}

TEST_F(GatedGeneratorTest, ACommitThatWaitsLetsSequencesFinishOnTheOldVersion) {
  Commit(1);
  auto old_version = AddAndAwaitAToken(5);
  auto commit = std::async(std::launch::async, [this] { Commit(2); });
  AllowStepsUntilDone(commit);
  EXPECT_THAT(Get(old_version).sequence.versions, ::testing::AllOf(::testing::SizeIs(5), Each(Step(1))));
  gate_->Allow(2);
  auto new_version = Add({10}, 2);
  EXPECT_THAT(Get(new_version).sequence.versions, ::testing::AllOf(::testing::SizeIs(2), Each(Step(2))));
}

TEST_F(GatedGeneratorTest, ACommitThatKeepsGoesOnWithTheNewVersionAndAFreshCache) {
  Commit(1);
  auto answer = AddAndAwaitAToken(kEndless);
  auto commit = std::async(std::launch::async, [this] { Commit(2, PauseMode::kKeep); });
  AllowStepsUntilDone(commit);
  gate_->Drain();
  AwaitAWholeStep();
  auto end = std::async(std::launch::async, [this] { Commit(3, PauseMode::kAbort); });
  AllowStepsUntilDone(end);
  const EndedSequence sequence = Get(answer).sequence;
  EXPECT_EQ(sequence.versions.front(), Step(1));
  const auto second = std::ranges::find(sequence.versions, Step(2));
  ASSERT_NE(second, sequence.versions.end());
  const auto kept = static_cast<std::size_t>(second - sequence.versions.begin());
  for (std::size_t i = 0; i < sequence.tokens.size(); ++i) {
    EXPECT_EQ(sequence.tokens[i], 21 + static_cast<int>(i));
    EXPECT_EQ(sequence.versions[i], Step(i < kept ? 1 : 2)) << "a version never comes back";
    // All of prompt and answer once for each version: nothing that the old one cached is used.
    const std::size_t fed = i == 0 ? 2 : i == kept ? 2 + kept : 1;
    EXPECT_EQ(sequence.logprobs[i], static_cast<double>(fed)) << i;
  }
}

TEST_F(GatedGeneratorTest, ACommitThatAbortsEndsSequencesWithWhatTheyHave) {
  Commit(1);
  auto answer = AddAndAwaitAToken(kEndless);
  auto commit = std::async(std::launch::async, [this] { Commit(2, PauseMode::kAbort); });
  AllowStepsUntilDone(commit);
  const Answer aborted = Get(answer);
  EXPECT_EQ(aborted.finish, "aborted");
  EXPECT_FALSE(aborted.sequence.tokens.empty());
  EXPECT_THAT(aborted.sequence.versions, Each(Step(1)));
}

TEST_F(GeneratorTest, ACommitThatFailsChangesNoVersionAndItsErrorIsTheCallers) {
  Commit(1);
  EXPECT_THAT([&] { Commit(2, PauseMode::kWait, [] { throw std::runtime_error("no room"); }); },
              ThrowsMessage<std::runtime_error>(HasSubstr("no room")));
  auto answer = Add({10}, 2);
  EXPECT_THAT(Get(answer).sequence.versions, Each(Step(1)));
}

TEST_F(GatedGeneratorTest, ACommitWhoseSequencesDoNotEndIsGivenUpAtItsDeadline) {
  auto answer = AddAndAwaitAToken(2);
  bool ran = false;
  EXPECT_THAT(
      [&] {
        const auto run = [&] {
          ran = true;
          return Step(1);
        };
        generator_->Commit(PauseMode::kWait, run, Deadline::After(std::chrono::milliseconds(20)));
      },
      ThrowsMessage<Error>(HasSubstr("did not finish before the deadline")));
  gate_->Allow();
  EXPECT_EQ(Get(answer).finish, "length");
  Commit(2);
  EXPECT_FALSE(ran);
}

TEST_F(GeneratorTest, ATornEngineAnswersNothingUntilAWholeVersionIsCommitted) {
  generator_->SetTorn("between run@1 and run@2");
  EXPECT_THAT([&] { Add({10}, 1); }, ThrowsMessage<Error>(HasSubstr("torn between run@1 and run@2")));
  Commit(1);
  auto answer = Add({10}, 1);
  EXPECT_EQ(Get(answer).finish, "length");
}

TEST_F(GatedGeneratorTest, APauseHoldsWhenSequencesHaveEndedAndNewOnesWaitUntilResume) {
  auto before = AddAndAwaitAToken(3);
  auto pause =
      std::async(std::launch::async, [this] { generator_->Pause(PauseMode::kWait, std::chrono::hours(1), Soon()); });
  AllowStepsUntilDone(pause);
  EXPECT_EQ(Get(before).finish, "length");
  auto after = Add({10}, 1);
  gate_->Allow();
  EXPECT_EQ(after.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout);
  Commit(7);  // versions change during a pause
  generator_->Resume();
  EXPECT_THAT(Get(after).sequence.versions, ElementsAre(Step(7)));
}

// A short lease may be over before the generating thread has heard of the pause, which then has never held: the next
// one is longer.
TEST_F(GeneratorTest, APauseIsALeaseThatEndsByItself) {
  const Deadline deadline = Soon();
  std::string error = "no pause yet";
  for (std::chrono::milliseconds lease{20}; error != "no error" && lease < kLong; lease *= 2) {
    error = ErrorOf([&] { generator_->Pause(PauseMode::kKeep, lease, deadline); });
  }
  ASSERT_EQ(error, "no error");
  auto answer = Add({10}, 1);
  EXPECT_EQ(Get(answer).finish, "length");
}

TEST_F(GatedGeneratorTest, APauseWhoseSequencesDoNotEndIsGivenUpAtItsDeadline) {
  auto answer = AddAndAwaitAToken(2);
  EXPECT_THAT(
      [&] {
        generator_->Pause(PauseMode::kWait, std::chrono::hours(1), Deadline::After(std::chrono::milliseconds(20)));
      },
      ThrowsMessage<Error>(HasSubstr("did not finish before the deadline of the pause")));
  gate_->Allow();
  EXPECT_EQ(Get(answer).finish, "length");
}

// Those sequences cannot finish, so nobody waits for them.
TEST_F(GatedGeneratorTest, ACommitThatWaitsIsOneThatKeepsWhereAPauseKeepsSequences) {
  Commit(1);
  auto answer = AddAndAwaitAToken(kEndless);
  PauseKeepingSequences();
  Commit(2, PauseMode::kWait);
  gate_->Drain();
  generator_->Resume();
  AwaitAWholeStep();
  AbortSequences();
  const Answer kept = Get(answer);
  EXPECT_EQ(kept.sequence.versions.front(), Step(1));
  EXPECT_EQ(kept.sequence.versions.back(), Step(2));
}

TEST_F(GatedGeneratorTest, ACommitThatWaitsFailsWhenTheRanksAreEnded) {
  Commit(1);
  auto answer = AddAndAwaitAToken(kEndless);
  auto commit = std::async(std::launch::async, [this] {
    Commit(2, PauseMode::kWait, [this] { ranks_.Call("prepare", Json::object(), Soon()); });
  });
  ranks_.End();
  EXPECT_THROW(commit.get(), Error);
  EXPECT_EQ(Get(answer).finish, "aborted");
}

TEST_F(GatedGeneratorTest, APauseThatIsResumedBeforeItHoldsIsNone) {
  auto answer = AddAndAwaitAToken(kEndless);
  auto pause =
      std::async(std::launch::async, [this] { generator_->Pause(PauseMode::kWait, std::chrono::hours(1), Soon()); });
  do {
    generator_->Resume();
  } while (pause.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready);
  EXPECT_THAT([&] { pause.get(); }, ThrowsMessage<Error>(HasSubstr("ended by a resume before it held")));
  AbortSequences();
  EXPECT_EQ(Get(answer).finish, "aborted");
}

TEST_F(GatedGeneratorTest, APauseWhoseLeaseEndsBeforeItHoldsIsNone) {
  auto answer = AddAndAwaitAToken(kEndless);
  auto pause = std::async(std::launch::async,
                          [this] { generator_->Pause(PauseMode::kWait, std::chrono::milliseconds(1), Soon()); });
  EXPECT_THAT([&] { AllowStepsUntilDone(pause); }, ThrowsMessage<Error>(HasSubstr("within the pause's lease")));
  AbortSequences();
  EXPECT_EQ(Get(answer).finish, "aborted");
}

TEST_F(GeneratorTest, SequencesThatKillTheirRankAreGivenUpAndOthersAreAnswered) {
  const std::vector<int> first = ranks_.pids();
  auto deadly = Add({kDeadlyToken}, 1);
  const Answer given_up = Get(deadly);
  EXPECT_EQ(given_up.finish, "aborted");
  EXPECT_THAT(given_up.sequence.tokens, IsEmpty());
  auto answer = Add({10}, 2);
  EXPECT_THAT(Get(answer).sequence.tokens, ElementsAre(11, 12));
  EXPECT_NE(ranks_.pids(), first) << "the rank was started anew";
}

// Its rank has answered: it is not lost.
TEST_F(GatedGeneratorTest, ASequenceWithoutATokenToPickFailsAloneAndItsRankLives) {
  const std::vector<int> pids = ranks_.pids();
  auto first = Add({10}, 3);
  gate_->AwaitStep();  // the others come while it is under way, and go into the next step together
  auto broken = Add({kBrokenToken - 1}, 5);
  auto other = Add({30}, 2);
  gate_->Allow(20);
  const Answer failed = Get(broken);
  EXPECT_EQ(failed.finish, "failed");
  EXPECT_THAT(failed.sequence.tokens, ElementsAre(kBrokenToken)) << "what it had by then";
  ASSERT_TRUE(failed.sequence.error);
  EXPECT_EQ(failed.sequence.error->code(), ErrorCode::kCorrupt);
  EXPECT_STREQ(failed.sequence.error->what(), "a broken logit");
  EXPECT_THAT(Get(first).sequence.tokens, ElementsAre(11, 12, 13));
  const Answer unharmed = Get(other);
  EXPECT_THAT(unharmed.sequence.tokens, ElementsAre(31, 32));
  EXPECT_THAT(unharmed.sequence.logprobs, ElementsAre(1, 1)) << "nothing was fed anew";
  EXPECT_FALSE(unharmed.sequence.error);
  EXPECT_EQ(ranks_.pids(), pids);
}

// Another thread may start the ranks anew while sequences are held: what they had cached is gone.
TEST_F(GatedGeneratorTest, ASequenceThatWasHeldWhileRanksWereStartedAnewIsFedFromItsFirstToken) {
  auto answer = AddAndAwaitAToken(kEndless);
  PauseKeepingSequences();
  ranks_.Restart(ranks_.generation());
  gate_->Drain();
  generator_->Resume();
  AwaitAWholeStep();
  AbortSequences();
  std::vector<double> fed = Get(answer).sequence.logprobs;
  ASSERT_FALSE(fed.empty());
  EXPECT_EQ(fed.front(), 2);
  const auto anew = std::find_if(fed.begin() + 1, fed.end(), [](double tokens) { return tokens != 1; });
  ASSERT_NE(anew, fed.end());
  EXPECT_EQ(*anew, static_cast<double>(2 + (anew - fed.begin()))) << "the prompt and all tokens until then";
}

TEST_F(FewSequencesTest, OthersWaitUntilOneHasEnded) {
  std::vector<std::string> ended;  // in the generating thread until all have
  std::promise<void> all;
  const auto add = [&](const std::string& name, std::int64_t max_new) {
    SequenceRequest request;
    request.prompt = {10};
    request.max_new = max_new;
    generator_->Add(std::move(request), [&, name](const Sequence&, const char* finish) {
      ended.push_back(name + " " + finish);
      if (ended.size() == 4) all.set_value();
    });
  };
  add("first", 6);
  gate_->AwaitStep();  // the others come while it is under way
  add("second", 3);
  add("third", 1);
  add("fourth", 1);
  gate_->Allow(20);
  auto done = all.get_future();
  ASSERT_EQ(done.wait_for(kLong), std::future_status::ready);
  // The third would be the first to end, had it not waited for the second.
  EXPECT_THAT(ended, ElementsAre("second length", "third length", "first length", "fourth length"));
}

// A rank whose weights go with its process.
class LostWeightsTest : public GeneratorTest {
 protected:
  LostWeightsTest() : GeneratorTest(OnDevice(*this)) {}

 private:
  static RankGroupOptions OnDevice(LostWeightsTest& test) {
    RankGroupOptions options = OneRank("");
    options.on_device = true;
    options.on_weights_lost = [&test] { test.generator_->SetTorn("since its weights were lost"); };
    return options;
  }
};

TEST_F(LostWeightsTest, NothingIsAnsweredUntilAWholeVersionIsCommitted) {
  Commit(1);
  auto deadly = Add({kDeadlyToken}, 1);
  EXPECT_EQ(Get(deadly).finish, "aborted");
  EXPECT_THAT([&] { Add({10}, 1); }, ThrowsMessage<Error>(HasSubstr("torn since its weights were lost")));
  Commit(2);
  auto answer = Add({10}, 2);
  EXPECT_THAT(Get(answer).sequence.versions, ::testing::AllOf(::testing::SizeIs(2), Each(Step(2))));
}

TEST_F(GeneratorTest, SurvivesARankThatCannotBeStartedAnew) {
  {
    const NoMoreFiles hold;
    auto deadly = Add({kDeadlyToken}, 1);
    EXPECT_EQ(Get(deadly).finish, "aborted");
  }
  auto answer = Add({10}, 2);
  EXPECT_THAT(Get(answer).sequence.tokens, ElementsAre(11, 12));
}

TEST_F(GatedGeneratorTest, EndsSequencesAsAbortedWhenItEnds) {
  auto running = AddAndAwaitAToken(kEndless);
  gate_->Allow();
  auto end = std::async(std::launch::async, [this] { generator_.reset(); });
  AllowStepsUntilDone(end);
  EXPECT_EQ(Get(running).finish, "aborted");
}

}  // namespace
}  // namespace layercast::testing
