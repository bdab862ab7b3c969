// A reload that waits for the word of another: in which order, and for how long.
#include "engine_side/server/held_reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "tests/support/error_of.h"

namespace layercast {
namespace {

using testing::ErrorOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Word = HeldReload::Word;

constexpr std::chrono::milliseconds kLongLease{60'000};

class HeldReloadTest : public ::testing::Test {
 protected:
  // What a reload does between its steps, on a thread of its own. The error that ended it, or none.
  std::future<std::string> Begin(std::chrono::milliseconds lease, Deadline deadline = Deadline::After(kLongLease)) {
    held_.Begin(lease, ReplyNamed("stage"));
    return std::async(std::launch::async, [this, deadline] {
      std::string error;
      try {
        held_.Await(Word::kPrepare, "staged", deadline);
        held_.Await(Word::kCommit, "prepared", deadline);
      } catch (const Error& caught) {
        error = caught.what();
      }
      held_.End("ended");
      return error;
    });
  }
  RpcReply ReplyNamed(const std::string& name) {
    return RpcReply(
        [this, name](const Json& answer) { answers_[name].set_value(answer["result"].get<std::string>()); });
  }
  std::string AnswerTo(const std::string& name) { return answers_[name].get_future().get(); }

  std::map<std::string, std::promise<std::string>> answers_{[] {
    std::map<std::string, std::promise<std::string>> answers;  // before the threads
    for (const char* name : {"stage", "prepare", "commit", "abort"}) answers[name];
    return answers;
  }()};
  HeldReload held_;
};

TEST_F(HeldReloadTest, GoesOnFromStepToStepAndAnswersEach) {
  auto reload = Begin(kLongLease);
  EXPECT_EQ(AnswerTo("stage"), "staged");
  held_.Say(Word::kPrepare, ReplyNamed("prepare"));
  EXPECT_EQ(AnswerTo("prepare"), "prepared");
  held_.Renew();
  held_.Say(Word::kCommit, ReplyNamed("commit"));
  EXPECT_EQ(reload.get(), "");
  EXPECT_EQ(AnswerTo("commit"), "ended");
}

TEST_F(HeldReloadTest, AbortsAtEitherStepAndAnswersOnceItHas) {
  auto reload = Begin(kLongLease);
  EXPECT_EQ(AnswerTo("stage"), "staged");
  held_.Say(Word::kAbort, ReplyNamed("abort"), "engine tcp://b:1: its disk is full");
  EXPECT_THAT(reload.get(), HasSubstr("not committed: abort_weights: engine tcp://b:1: its disk is full"));
  EXPECT_EQ(AnswerTo("abort"), "ended");
}

TEST_F(HeldReloadTest, RefusesWordsOutOfOrder) {
  EXPECT_THAT(ErrorOf([&] { held_.Say(Word::kCommit, ReplyNamed("commit")); }), HasSubstr("no version is held"));
  EXPECT_THAT(ErrorOf([&] { held_.Renew(); }), HasSubstr("no version is held"));
  auto reload = Begin(kLongLease);
  EXPECT_EQ(AnswerTo("stage"), "staged");
  EXPECT_THAT(ErrorOf([&] { held_.Say(Word::kCommit, ReplyNamed("commit")); }),
              HasSubstr("commit_weights: expected prepare_weights or abort_weights"));
  held_.Say(Word::kAbort, ReplyNamed("abort"));
  EXPECT_THAT(reload.get(), Not(""));
}

TEST_F(HeldReloadTest, WaitsForNobodyLongerThanItsLease) {
  auto reload = Begin(std::chrono::milliseconds(1));
  EXPECT_THAT(reload.get(), HasSubstr("held for prepare_weights, which did not come in 1 ms"));
  EXPECT_EQ(AnswerTo("stage"), "staged");
  EXPECT_THAT(ErrorOf([&] { held_.Renew(); }), HasSubstr("its lease is over"));
}

TEST_F(HeldReloadTest, WaitsForNobodyBeyondItsDeadline) {
  EXPECT_THAT(Begin(kLongLease, Deadline::After(std::chrono::milliseconds(1))).get(), HasSubstr("in time"));
}

TEST_F(HeldReloadTest, AnEngineThatEndsAbortsIt) {
  auto reload = Begin(kLongLease);
  EXPECT_EQ(AnswerTo("stage"), "staged");
  held_.Close();
  EXPECT_THAT(reload.get(), HasSubstr("the engine ends"));
}

}  // namespace
}  // namespace layercast
