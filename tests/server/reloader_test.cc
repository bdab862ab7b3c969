// What an engine says it serves, after reloads that fail in each of their phases. The ranks are processes
// (scripted_rank.cc).
#include "engine_side/server/reloader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <string>

#include "layercast/error.h"
#include "src/control/json_forms.h"
#include "tests/support/child_process.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::ThrowsMessage;

RankGroupOptions TwoRanks() {
  RankGroupOptions options;
  options.program = test::FolderOfThisProgram() + "/scripted_rank";
  options.tp_size = 2;
  return options;
}

class ReloaderTest : public ::testing::Test {
 protected:
  Json Reload(std::uint64_t step, const std::string& fails_in = "none") {
    return reloader_.Reload({{"load_format", "dummy"}, {"seed", step}, {"fails_in", fails_in}});
  }
  static Json Step(std::uint64_t step) {
    Version version;
    version.step = step;
    return VersionToJson(version);
  }
  std::string Generate() {
    std::promise<std::string> finish;
    SequenceRequest request;
    request.prompt = {1};
    request.max_new = 1;
    generator_.Add(std::move(request), [&](const Sequence&, const char* how) { finish.set_value(how); });
    return finish.get_future().get();
  }

  RankGroup ranks_{TwoRanks()};
  Generator generator_{ranks_};
  Reloader reloader_{ranks_, generator_, "wait"};
};

TEST_F(ReloaderTest, AFailureBeforeTheCommitLeavesTheOldVersion) {
  ASSERT_EQ(Reload(1)["ok"], true);
  for (const char* phase : {"stage", "prepare"}) {
    const Json outcome = Reload(2, phase);
    EXPECT_EQ(outcome["ok"], false);
    // Both do; whose answer is there first is the kernel's to say.
    EXPECT_THAT(outcome["error"]["message"].get<std::string>(), MatchesRegex("rank [01]: it was to fail")) << phase;
    EXPECT_EQ(outcome["version"], Step(1)) << phase;
    EXPECT_EQ(reloader_.Status()["torn"], nullptr) << phase;
    EXPECT_EQ(Generate(), "length") << phase;
  }
}

// The others would go on for ever.
TEST_F(ReloaderTest, WhenOneRankFailsTheOthersGiveUpAndItsErrorIsTheReloads) {
  ASSERT_EQ(Reload(1)["ok"], true);
  for (const int rank : {1, 0}) {
    for (const char* code : {"cancelled", "unavailable"}) {
      const Json outcome = reloader_.Reload({{"load_format", "dummy"},
                                             {"seed", 2},
                                             {"timeout_ms", 20'000},
                                             {"fails_in", "stage"},
                                             {"fails_on", rank},
                                             {"gives_up_with", code}});
      EXPECT_EQ(outcome["error"]["code"], "corrupt");
      EXPECT_EQ(outcome["error"]["message"], "rank " + std::to_string(rank) + ": it was to fail");
      EXPECT_EQ(outcome["version"], Step(1));
    }
  }
  EXPECT_EQ(Reload(3)["version"], Step(3));
}

// What is served is not what was committed: not the version before it, nor that one.
TEST_F(ReloaderTest, WrongServedBytesTearTheEngineUntilAWholeVersionLands) {
  ASSERT_EQ(Reload(1)["ok"], true);
  const Json outcome = Reload(2, "verify");
  EXPECT_EQ(outcome["ok"], false);
  EXPECT_EQ(outcome["version"], nullptr);
  EXPECT_EQ(outcome["error"]["code"], "corrupt");
  const Json status = reloader_.Status();
  EXPECT_EQ(status["state"], "torn");
  EXPECT_EQ(status["version"], nullptr);
  EXPECT_EQ(status["torn"], (Json{{"from", Step(1)}, {"to", Step(2)}}));
  EXPECT_THAT([&] { Generate(); },
              ThrowsMessage<Error>(HasSubstr("until a whole version lands: rank 0: it was to fail")));

  EXPECT_EQ(Reload(3)["version"], Step(3));
  EXPECT_EQ(reloader_.Status()["torn"], nullptr);
  EXPECT_EQ(reloader_.Status()["state"], "serving");
  EXPECT_EQ(Generate(), "length");
}

TEST_F(ReloaderTest, AFirstVersionOfWrongBytesTearsTheEngineToo) {
  EXPECT_EQ(Reload(1, "verify")["ok"], false);
  EXPECT_EQ(reloader_.Status()["torn"], (Json{{"from", nullptr}, {"to", Step(1)}}));
}

TEST_F(ReloaderTest, ARankThatWasStartedAnewIsCalledByItsProcess) {
  ASSERT_EQ(Reload(1)["ok"], true);
  ranks_.Restart();
  const Json ranks = reloader_.Status()["ranks"];
  ASSERT_EQ(ranks.size(), 2U);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_EQ(ranks[rank]["pid"], ranks_.pids()[rank]);
    EXPECT_EQ(ranks[rank]["buffers_digest"], nullptr);
  }
}

TEST_F(ReloaderTest, WhatFailsBecauseTheEngineWasEndedSaysSo) {
  ASSERT_EQ(Reload(1)["ok"], true);
  ranks_.End();
  const Json outcome = Reload(2);
  EXPECT_EQ(outcome["error"]["code"], "cancelled");
  EXPECT_EQ(outcome["error"]["message"], "the engine was ended");
}

TEST_F(ReloaderTest, WhileItIsTornTheLastWholeVersionIsRemembered) {
  ASSERT_EQ(Reload(1)["ok"], true);
  ASSERT_EQ(Reload(2, "verify")["ok"], false);
  ASSERT_EQ(Reload(3, "commit")["ok"], false);
  EXPECT_EQ(reloader_.Status()["torn"], (Json{{"from", Step(1)}, {"to", Step(3)}}));
}

}  // namespace
}  // namespace layercast
