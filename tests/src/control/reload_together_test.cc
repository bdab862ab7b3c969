// Engines that take a version together, or not at all: what each is told, whatever the others do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "layercast/controller.h"
#include "src/control/rpc.h"
#include "src/control/vote.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using layercast::testing::ErrorOf;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr std::chrono::milliseconds kNoTime{0};

constexpr std::uint64_t kTicket = 0xFEDC'BA98'7654'3210;  // more than a double tells apart

Json VersionOf(int step) {
  return {{"lineage", "run"}, {"step", step}, {"digest", "00112233445566778899aabbccddee0" + std::to_string(step)}};
}

Json Fine(int step) {
  return {{"ok", true},        {"version", VersionOf(1)}, {"previous", VersionOf(1)}, {"staged", VersionOf(step)},
          {"report", nullptr}, {"error", nullptr},        {"ticket", kTicket}};
}

Json Failed(const std::string& why) {
  Json failed = Fine(2);
  failed["ok"] = false;
  failed["error"] = ErrorToJson(Error(ErrorCode::kUnavailable, why));
  return failed;
}

// Answers each method as the test says, and fine to those of which it says nothing.
class EngineInSteps {
 public:
  // `before` each answer it calls that; which may take its time.
  explicit EngineInSteps(
      std::map<std::string, Json> answers = {},
      std::function<void(const std::string& method)> before = [](const std::string&) {})
      : answers_(std::move(answers)), before_(std::move(before)) {}

  std::string endpoint() const { return server_.endpoint(); }
  // In their order, and none of those that only hold.
  std::vector<std::string> Told() {
    const std::lock_guard lock(mutex_);
    return told_;
  }

 private:
  Json Answer(const std::string& method, const Json& params) {
    before_(method);
    EXPECT_TRUE(method == "stage_weights" || params.at("ticket") == kTicket) << method << ": " << params;
    const std::lock_guard lock(mutex_);
    if (method != "hold_weights") told_.push_back(method);
    const auto answer = answers_.find(method);
    if (answer == answers_.end()) return Fine(2);
    if (answer->second.is_string()) throw Error(ErrorCode::kFailedPrecondition, answer->second.get<std::string>());
    return answer->second;
  }

  std::mutex mutex_;
  const std::map<std::string, Json> answers_;
  const std::function<void(const std::string&)> before_;
  std::vector<std::string> told_;  // guarded by mutex_
  RpcServer server_{"tcp://127.0.0.1:0", Keys(),
                    [this](const std::string& method, const Json& params, const RpcReply& reply) {
                      reply.Result(Answer(method, params));
                    }};
};

std::vector<EngineOutcome> Together(const std::vector<EngineInSteps*>& engines) {
  std::vector<std::string> endpoints;
  for (const EngineInSteps* engine : engines) endpoints.push_back(engine->endpoint());
  return Controller(endpoints).ReloadWeights({.publisher = "tcp://127.0.0.1:9", .all_or_none = true});
}

const std::vector<std::string> kAllSteps = {"stage_weights", "prepare_weights", "commit_weights"};

TEST(ReloadTogether, AllCommitOnceAllArePrepared) {
  EngineInSteps one, other;
  for (const EngineOutcome& outcome : Together({&one, &other})) EXPECT_TRUE(outcome.ok);
  EXPECT_EQ(one.Told(), kAllSteps);
  EXPECT_EQ(other.Told(), kAllSteps);
}

TEST(ReloadTogether, OneThatCannotStageIsEnoughThatNoneCommits) {
  EngineInSteps good, bad({{"stage_weights", Failed("the publisher is gone")}});
  const std::vector<EngineOutcome> outcomes = Together({&good, &bad});
  EXPECT_FALSE(outcomes[0].ok);
  EXPECT_EQ(outcomes[0].error->code(), ErrorCode::kCancelled);
  EXPECT_THAT(outcomes[0].error->what(), AllOf(HasSubstr(bad.endpoint()), HasSubstr("the publisher is gone")));
  EXPECT_EQ(outcomes[0].version->step, 1U) << "what it serves";
  EXPECT_EQ(outcomes[0].previous, outcomes[0].version) << "what it served before";
  EXPECT_EQ(outcomes[1].error->code(), ErrorCode::kUnavailable);
  EXPECT_EQ(good.Told(), (std::vector<std::string>{"stage_weights", "abort_weights"}));
  EXPECT_EQ(bad.Told(), std::vector<std::string>{"stage_weights"});
}

TEST(ReloadTogether, OneThatCannotPrepareIsEnoughThatNoneCommits) {
  EngineInSteps good, bad({{"prepare_weights", Failed("sequences did not finish")}});
  const std::vector<EngineOutcome> outcomes = Together({&good, &bad});
  EXPECT_THAT(outcomes[0].error->what(), HasSubstr("sequences did not finish"));
  EXPECT_THAT(good.Told(), AllOf(Contains("abort_weights"), Not(Contains("commit_weights"))));
  EXPECT_THAT(bad.Told(), Not(Contains("commit_weights")));
}

TEST(ReloadTogether, AnEngineThatAbortsSaysItselfWhatItServes) {
  Json aborted = Failed("not committed");
  aborted["version"] = nullptr;  // it was torn while it waited
  aborted["previous"] = VersionOf(3);
  aborted["report"] = {{"bytes", 12}};
  EngineInSteps good({{"abort_weights", aborted}}), bad({{"stage_weights", Failed("the publisher is gone")}});
  const EngineOutcome outcome = Together({&good, &bad}).front();
  EXPECT_EQ(outcome.version, std::nullopt);
  EXPECT_EQ(outcome.previous->step, 3U);
  EXPECT_THAT(outcome.report, HasSubstr("12"));
  EXPECT_EQ(outcome.error->code(), ErrorCode::kCancelled);
}

TEST(ReloadTogether, DifferentVersionsAreNotCommitted) {
  EngineInSteps one, other({{"stage_weights", Fine(3)}});
  const std::vector<EngineOutcome> outcomes = Together({&one, &other});
  for (const EngineOutcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.ok);
    EXPECT_THAT(outcome.error->what(), AllOf(HasSubstr("run@2"), HasSubstr("run@3"), HasSubstr("expected")));
  }
  EXPECT_THAT(one.Told(), Contains("abort_weights"));
  EXPECT_THAT(other.Told(), Contains("abort_weights"));
}

TEST(ReloadTogether, AnotherDigestThanTheOneAskedForIsNotCommitted) {
  EngineInSteps engine;
  const Version asked{.lineage = "run", .step = 2, .digest = *Digest::FromHex("ffffffffffffffffffffffffffffffff")};
  const auto outcomes = Controller({engine.endpoint()})
                            .ReloadWeights({.publisher = "tcp://127.0.0.1:9", .version = asked, .all_or_none = true});
  EXPECT_THAT(outcomes[0].error->what(), HasSubstr("staged run@2"));
  EXPECT_THAT(engine.Told(), Not(Contains("commit_weights")));
}

TEST(ReloadTogether, AnEngineThatLetsGoWhileItWaitsIsEnough) {
  std::promise<void> held;
  const Json over = "its lease is over";
  EngineInSteps impatient({{"hold_weights", over}, {"prepare_weights", over}, {"abort_weights", over}},
                          [&](const std::string& method) {
                            if (method == "hold_weights") held.set_value();
                          });
  EngineInSteps slow({}, [&](const std::string& method) {
    if (method == "stage_weights") held.get_future().wait();
  });
  const std::vector<EngineOutcome> outcomes = Together({&impatient, &slow});
  for (const EngineOutcome& outcome : outcomes) EXPECT_THAT(outcome.error->what(), HasSubstr("its lease is over"));
  EXPECT_THAT(slow.Told(), AllOf(Contains("abort_weights"), Not(Contains("commit_weights"))));
}

// Asked after all were prepared, since the first of them may have waited long for the last.
TEST(ReloadTogether, AnEngineThatLetsGoOnceItWasPreparedIsEnough) {
  EngineInSteps good, gone({{"hold_weights", "its lease is over"}, {"abort_weights", "its lease is over"}});
  const std::vector<EngineOutcome> outcomes = Together({&good, &gone});
  EXPECT_EQ(outcomes[0].error->code(), ErrorCode::kCancelled);
  EXPECT_EQ(outcomes[1].error->code(), ErrorCode::kFailedPrecondition);
  for (const EngineOutcome& outcome : outcomes) {
    EXPECT_THAT(outcome.error->what(), AllOf(HasSubstr(gone.endpoint()), HasSubstr("its lease is over")));
  }
  EXPECT_EQ(good.Told(), (std::vector<std::string>{"stage_weights", "prepare_weights", "abort_weights"}));
}

// The first time that its lease is renewed, which is a second later, it has let go, as all engines have by then.
TEST(ReloadTogether, AnEngineThatLetsGoWhenTheTimeIsOverIsNotTheFault) {
  EngineInSteps good({{"hold_weights", "its lease is over"}, {"abort_weights", "its lease is over"}});
  const std::string gone = "tcp://127.0.0.1:9";
  const auto outcomes =
      Controller({good.endpoint(), gone})
          .ReloadWeights(
              {.publisher = "tcp://127.0.0.1:9", .all_or_none = true, .timeout = std::chrono::milliseconds(1200)});
  EXPECT_EQ(outcomes[0].error->code(), ErrorCode::kCancelled);
  EXPECT_THAT(outcomes[0].error->what(), AllOf(HasSubstr("engine " + gone), Not(HasSubstr("lease"))));
  EXPECT_EQ(outcomes[1].error->code(), ErrorCode::kDeadlineExceeded);
}

TEST(ReloadTogether, WhatIsDecidedIsWaitedForThoughTheTimeIsOver) {
  constexpr std::chrono::milliseconds kTimeout{2000};
  const Deadline over = Deadline::After(kTimeout + std::chrono::milliseconds(200));
  EngineInSteps slow({}, [&](const std::string& method) {
    while (method == "commit_weights" && !over.Passed()) std::this_thread::yield();
  });
  EngineInSteps other;
  const auto outcomes =
      Controller({slow.endpoint(), other.endpoint()})
          .ReloadWeights({.publisher = "tcp://127.0.0.1:9", .all_or_none = true, .timeout = kTimeout});
  for (const EngineOutcome& outcome : outcomes) EXPECT_TRUE(outcome.ok) << outcome.error->what();
}

// It would stage for one of them, and hold that until it has staged for the other.
TEST(ReloadTogether, WhatIsCancelledBeforeItIsDecidedIsCommittedNowhere) {
  std::optional<Controller> controller;  // ends after the engines, whose threads are in it
  std::promise<void> made;
  const auto made_one = made.get_future().share();
  EngineInSteps one, other({}, [&](const std::string& method) {
    if (method != "prepare_weights") return;
    made_one.get();
    controller->Cancel();
  });
  controller.emplace(std::vector{one.endpoint(), other.endpoint()});
  made.set_value();
  for (const EngineOutcome& outcome :
       controller->ReloadWeights({.publisher = "tcp://127.0.0.1:9", .all_or_none = true})) {
    EXPECT_FALSE(outcome.ok);
    EXPECT_EQ(outcome.error->code(), ErrorCode::kCancelled) << outcome.error->what();
  }
  EXPECT_THAT(one.Told(), Not(Contains("commit_weights")));
  EXPECT_THAT(other.Told(), Not(Contains("commit_weights")));
}

TEST(ReloadTogether, AnEngineUnderTwoNamesIsRefused) {
  EngineInSteps engine;
  const std::string alias = "tcp://localhost" + engine.endpoint().substr(engine.endpoint().rfind(':'));
  EXPECT_THAT(
      ErrorOf([&] {
        Controller({engine.endpoint(), alias}).ReloadWeights({.publisher = "tcp://127.0.0.1:9", .all_or_none = true});
      }),
      HasSubstr("engine " + alias + " is engine " + engine.endpoint() + ": expected each of them once"));
  EXPECT_THAT(engine.Told(), IsEmpty());
}

TEST(ReloadTogether, AnEndpointThatIsNoneIsEnough) {
  EngineInSteps good;
  const auto outcomes =
      Controller({good.endpoint(), "nowhere"}).ReloadWeights({.publisher = "tcp://127.0.0.1:9", .all_or_none = true});
  EXPECT_THAT(outcomes[0].error->what(), HasSubstr("nowhere"));
  EXPECT_FALSE(outcomes[1].ok);
  EXPECT_THAT(good.Told(), Not(Contains("commit_weights")));
}

Error Because(const std::string& why, ErrorCode code = ErrorCode::kUnavailable) { return {code, why}; }

TEST(Vote, IsYesOnceAllSaidYes) {
  Vote vote(2);
  vote.Yes();
  EXPECT_EQ(vote.AwaitFor(kNoTime), std::nullopt);
  vote.Yes();
  EXPECT_EQ(vote.AwaitFor(kNoTime), true);
  vote.No(Because("too late"));
  EXPECT_EQ(vote.AwaitFor(kNoTime), true);
}

TEST(Vote, OneNoDecidesAndTheFirstOneSaysWhy) {
  Vote vote(3);
  vote.Yes();
  vote.No(Because("the first"));
  vote.No(Because("the second"));
  EXPECT_EQ(vote.AwaitFor(kNoTime), false);
  vote.Yes();
  EXPECT_EQ(vote.AwaitFor(kNoTime), false);
  EXPECT_STREQ(vote.why()->what(), "the first");
}

TEST(Vote, WhoGaveUpBecauseAnotherFailedIsNotTheReason) {
  Vote vote(4);
  EXPECT_TRUE(vote.No(Because("gave up", ErrorCode::kCancelled)));
  EXPECT_FALSE(vote.No(Because("gave up too", ErrorCode::kCancelled)));
  EXPECT_STREQ(vote.why()->what(), "gave up");
  EXPECT_FALSE(vote.No(Because("had failed")));
  EXPECT_FALSE(vote.No(Because("failed as well")));
  EXPECT_STREQ(vote.why()->what(), "had failed");
}

}  // namespace
}  // namespace layercast
