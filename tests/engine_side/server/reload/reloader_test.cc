// What an engine says it serves, after reloads that fail in each of their phases. The ranks are processes
// (scripted_rank.cc).
#include "engine_side/server/reload/reloader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "layercast/error.h"
#include "src/base/deadline.h"
#include "src/control/json_forms.h"
#include "src/control/progress_forms.h"
#include "src/control/rpc.h"
#include "tests/engine_side/server/step_gate.h"
#include "tests/support/child_process.h"

namespace layercast {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::StepGate;
using ::testing::ThrowsMessage;

constexpr std::chrono::milliseconds kLongWait{20'000};

RankGroupOptions TwoRanks(CommitPolicy policy, const std::string& model) {
  RankGroupOptions options;
  options.program = test::FolderOfThisProgram() + "/scripted_rank";
  options.model = model;
  options.tp_size = 2;
  options.commit = policy;
  return options;
}

class ReloaderTest : public ::testing::Test {
 protected:
  explicit ReloaderTest(CommitPolicy policy = CommitPolicy::kStaged, const std::string& model = "")
      : ranks_(TwoRanks(policy, model)) {}

  Json Reload(std::uint64_t step, const std::string& fails_in = "none", const std::string& fails_with = "corrupt") {
    return reloader_.Reload(
        {{"load_format", "dummy"}, {"seed", step}, {"fails_in", fails_in}, {"fails_with", fails_with}});
  }
  // That version and its digests, on every rank.
  void ExpectServes(std::uint64_t step) const {
    const Json status = reloader_.Status();
    EXPECT_EQ(status["version"], Step(step));
    EXPECT_EQ(status["torn"], nullptr);
    ASSERT_EQ(status["ranks"].size(), 2U);
    for (const Json& rank : status["ranks"]) EXPECT_EQ(rank["served_digest"], (Digest{.high = 0, .low = step}.ToHex()));
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

  RankGroup ranks_;
  AdapterRegistry adapters_{0, AdapterSwitch::kFinish};
  Generator generator_{ranks_, adapters_};
  Reloader reloader_{ranks_, generator_, adapters_, "wait"};
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

// It holds memory, and a publisher that waits.
TEST_F(ReloaderTest, WhatWasStagedIsDroppedWhenARankRefusesToCommitIt) {
  ASSERT_EQ(Reload(1)["ok"], true);
  ASSERT_EQ(Reload(2, "prepare")["ok"], false);
  for (const Json& staged : ranks_.Call("staged", Json::object(), Deadline::After(kLongWait))) EXPECT_EQ(staged, false);
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

// Only how the memory reads is not known.
TEST_F(ReloaderTest, AVersionThatWasNotReadBackIsServedWithItsOwnDigests) {
  ASSERT_EQ(Reload(1)["ok"], true);
  EXPECT_EQ(Reload(2, "verify", "deadline_exceeded")["ok"], false);
  ExpectServes(2);
}

class UndoingReloaderTest : public ReloaderTest {
 protected:
  UndoingReloaderTest() : ReloaderTest(CommitPolicy::kUndo) {}
};

TEST_F(UndoingReloaderTest, AVersionThatWasNotReadBackIsRecognizedWhenItIsPutBack) {
  ASSERT_EQ(Reload(1)["ok"], true);
  ASSERT_EQ(Reload(2, "verify", "deadline_exceeded")["ok"], false);
  EXPECT_EQ(Reload(3, "commit")["ok"], false);
  ExpectServes(2);
}

TEST_F(UndoingReloaderTest, AVersionThatIsPutBackBringsItsDigests) {
  ASSERT_EQ(Reload(1)["ok"], true);
  ASSERT_EQ(reloader_.Reload({{"load_format", "dummy"},
                              {"seed", 2},
                              {"fails_in", "commit"},
                              {"fails_on", 0},
                              {"gives_up_with", "cancelled"}})["ok"],
            false);
  ExpectServes(1);
}

// Whoever generates starts the ranks anew as well, perhaps first.
class GatedReloaderTest : public ReloaderTest {
 protected:
  GatedReloaderTest() : GatedReloaderTest(std::make_unique<StepGate>()) {}
  explicit GatedReloaderTest(std::unique_ptr<StepGate> gate)
      : ReloaderTest(CommitPolicy::kStaged, gate->folder()), gate_(std::move(gate)) {}

  std::unique_ptr<StepGate> gate_;
};

// docs/cli.md
TEST_F(GatedReloaderTest, UntilTheFirstVersionIsThereItIsLoadingAndHasNothingToReport) {
  const Json nothing = {{"state", "loading"},      {"version", nullptr},        {"noise", nullptr},
                        {"progress", nullptr},     {"torn", nullptr},           {"previous", nullptr},
                        {"keeps_previous", false}, {"commit", "staged"},        {"ranks", Json::array()},
                        {"channel", nullptr},      {"adapters", Json::array()}, {"last_report", nullptr},
                        {"last_error", nullptr}};
  EXPECT_EQ(reloader_.Status(), nothing);
  auto load = std::async(std::launch::async, [this] {
    return reloader_.Reload({{"load_format", "dummy"}, {"seed", 1}, {"holds_in", "stage"}});
  });
  gate_->AwaitStep();  // it receives
  Json receiving = reloader_.Status();
  EXPECT_TRUE(receiving["progress"].is_object());
  receiving["progress"] = nullptr;
  EXPECT_EQ(receiving, nothing);
  ranks_.End();
  EXPECT_EQ(load.get()["ok"], false);
  EXPECT_EQ(reloader_.Status()["state"], "loading") << "nothing is served";
  EXPECT_EQ(reloader_.Status()["last_error"]["code"], "cancelled");
}

TEST_F(GatedReloaderTest, FromThenOnItsStateIsThatOfTheReload) {
  ASSERT_EQ(Reload(1)["ok"], true);
  for (const auto& [phase, state] : {std::pair("stage", "receiving"), std::pair("prepare", "committing")}) {
    auto reload = std::async(std::launch::async, [&, phase = phase] {
      return reloader_.Reload({{"load_format", "dummy"}, {"seed", 2}, {"holds_in", phase}});
    });
    gate_->AwaitStep();
    gate_->AwaitStep();  // of both ranks
    EXPECT_EQ(reloader_.Status()["state"], state);
    ranks_.Restart(ranks_.generation());
    EXPECT_EQ(reload.get()["ok"], false);
    EXPECT_EQ(reloader_.Status()["state"], "serving");
  }
}

TEST_F(ReloaderTest, TheLoadAtTheStartIsReportedAsTheFirstReload) {
  const Json outcome = Reload(1);
  Json status = reloader_.Status();
  EXPECT_EQ(status["state"], "serving");
  EXPECT_EQ(status["last_report"], outcome["report"]);
  EXPECT_EQ(status["last_report"]["version"], Step(1));
  EXPECT_EQ(status["last_error"], nullptr);
  const Json failed = Reload(2, "stage");
  status = reloader_.Status();
  EXPECT_EQ(status["last_report"], failed["report"]);
  EXPECT_EQ(status["last_error"], failed["error"]);
  EXPECT_EQ(status["version"], Step(1));
}

TEST_F(GatedReloaderTest, RanksThatAreStartedAnewByAnotherWhileTheyVerifyFailNoReload) {
  ASSERT_EQ(Reload(1)["ok"], true);
  auto outcome = std::async(std::launch::async, [this] {
    return reloader_.Reload({{"load_format", "dummy"}, {"seed", 2}, {"holds_in", "verify"}});
  });
  gate_->AwaitStep();  // it verifies
  ranks_.Restart(ranks_.generation());
  const Json reloaded = outcome.get();
  EXPECT_EQ(reloaded["ok"], true) << reloaded["error"];
  ExpectServes(2);
}

TEST_F(GatedReloaderTest, AReloadUnderWaySaysHowFarEachRankHasCome) {
  ASSERT_EQ(Reload(1)["ok"], true);
  EXPECT_EQ(reloader_.Status()["progress"], nullptr);
  const auto rank = [](std::uint64_t bytes) {
    return ReloadProgress{.version = {.lineage = "run", .step = 2, .digest = {}},
                          .stage = "receive",
                          .bytes = bytes,
                          .bytes_total = 100,
                          .layers = bytes / 10,
                          .layers_total = 10};
  };
  const std::vector<ReloadProgress> ranks = {rank(90), rank(40)};
  auto outcome = std::async(std::launch::async, [&] {
    return reloader_.Reload({{"load_format", "dummy"},
                             {"seed", 2},
                             {"holds_in", "stage"},
                             {"says", {ProgressToJson(ranks[0]), ProgressToJson(ranks[1])}}});
  });
  const auto progress = [this] { return reloader_.Status()["progress"]; };
  const Deadline deadline = Deadline::After(kLongWait);
  while ((progress().is_null() || progress()["bytes"] != 130) && !deadline.Passed()) std::this_thread::yield();
  Json said = progress();
  EXPECT_GT(said["elapsed_ms"], 0);
  said.erase("elapsed_ms");
  EXPECT_EQ(said, EngineProgressToJson(ranks));
  EXPECT_EQ(said["bytes_total"], 200);
  ranks_.Restart(ranks_.generation());
  const Json failed = outcome.get();
  EXPECT_EQ(failed["ok"], false);
  EXPECT_EQ(failed["report"]["bytes"], 130);  // the last words of ranks that are lost
  EXPECT_EQ(failed["report"]["bytes_total"], 200);
  EXPECT_EQ(reloader_.Status()["progress"], nullptr);
}

TEST_F(ReloaderTest, RanksThatDieAfterTheirCommitFailNoReloadWhoeverNoticesFirst) {
  ASSERT_EQ(Reload(1)["ok"], true);
  SequenceRequest endless;
  endless.prompt = {1000};  // it counts on from there, past the token that kills a scripted rank
  endless.max_new = 1'000'000;
  generator_.Add(std::move(endless), [](const Sequence&, const char*) {});
  for (std::uint64_t step = 2; step < 6; ++step) {
    const Json outcome =
        reloader_.Reload({{"load_format", "dummy"}, {"seed", step}, {"pause_mode", "keep"}, {"dies_after", "commit"}});
    EXPECT_EQ(outcome["ok"], true) << outcome["error"];
    ExpectServes(step);
  }
}

TEST_F(ReloaderTest, RanksAreStartedAnewOnceForEachFailure) {
  const std::uint64_t failed = ranks_.generation();
  ranks_.Restart(failed);
  const std::vector<int> anew = ranks_.pids();
  ranks_.Restart(failed);
  EXPECT_EQ(ranks_.pids(), anew);
  ranks_.RestartIfLost();
  EXPECT_EQ(ranks_.pids(), anew);
}

TEST_F(ReloaderTest, ARankThatWasStartedAnewIsCalledByItsProcess) {
  ASSERT_EQ(Reload(1)["ok"], true);
  ranks_.Restart(ranks_.generation());
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

TEST_F(ReloaderTest, AnEngineThatIsEndedWaitsForNoLender) {
  ASSERT_EQ(Reload(1)["ok"], true);
  std::promise<void> asked;
  const RpcServer lender("tcp://127.0.0.1:0", Keys(), [&](const std::string&, const Json&, const RpcReply&) {
    asked.set_value();  // and no answer comes
  });
  auto outcome = std::async(std::launch::async, [&] { return reloader_.Reload({{"engine", lender.endpoint()}}); });
  ASSERT_EQ(asked.get_future().wait_for(kLongWait), std::future_status::ready);
  ranks_.End();
  ASSERT_EQ(outcome.wait_for(kLongWait), std::future_status::ready);
  EXPECT_EQ(outcome.get()["error"]["message"], "the engine was ended");
}

TEST_F(ReloaderTest, WhileItIsTornTheLastWholeVersionIsRemembered) {
  ASSERT_EQ(Reload(1)["ok"], true);
  ASSERT_EQ(Reload(2, "verify")["ok"], false);
  ASSERT_EQ(Reload(3, "commit")["ok"], false);
  EXPECT_EQ(reloader_.Status()["torn"], (Json{{"from", Step(1)}, {"to", Step(3)}}));
}

}  // namespace
}  // namespace layercast
