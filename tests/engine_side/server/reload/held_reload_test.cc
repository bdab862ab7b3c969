// A reload that waits for the word of another: in which order, and for how long.
#include "engine_side/server/reload/held_reload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <future>
#include <map>
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
        held_.Await(Word::kPrepare, {{"said", "staged"}}, deadline);
        held_.Await(Word::kCommit, {{"said", "prepared"}}, deadline);
      } catch (const Error& caught) {
        error = caught.what();
      }
      held_.End({{"said", "ended"}});
      return error;
    });
  }
  RpcReply ReplyNamed(const std::string& name) {
    return RpcReply([this, name](const Json& answer) { answers_[name].set_value(answer["result"]); });
  }
  std::string AnswerTo(const std::string& name) {
    const Json answer = answers_[name].get_future().get();
    ticket_ = answer.value("ticket", ticket_);
    return answer["said"];
  }

  std::map<std::string, std::promise<Json>> answers_{[] {
    std::map<std::string, std::promise<Json>> answers;  // before the threads
    for (const char* name : {"stage", "prepare", "commit", "abort"}) answers[name];
    return answers;
  }()};
  HeldReload held_;
  std::uint64_t ticket_ = 0;
};

TEST_F(HeldReloadTest, GoesOnFromStepToStepAndAnswersEach) {
  auto reload = Begin(kLongLease);
  EXPECT_EQ(AnswerTo("stage"), "staged");
  held_.Say(Word::kPrepare, ticket_, ReplyNamed("prepare"));
  EXPECT_EQ(AnswerTo("prepare"), "prepared");
  held_.Renew(ticket_);
  held_.Say(Word::kCommit, ticket_, ReplyNamed("commit"));
  EXPECT_EQ(reload.get(), "");
  EXPECT_EQ(AnswerTo("commit"), "ended");
}

TEST_F(HeldReloadTest, AbortsAtEitherStepAndAnswersOnceItHas) {
  auto reload = Begin(kLongLease);
  EXPECT_EQ(AnswerTo("stage"), "staged");
  held_.Say(Word::kAbort, ticket_, ReplyNamed("abort"), "engine tcp://b:1: its disk is full");
  EXPECT_THAT(reload.get(), HasSubstr("not committed: abort_weights: engine tcp://b:1: its disk is full"));
  EXPECT_EQ(AnswerTo("abort"), "ended");
}

TEST_F(HeldReloadTest, RefusesWordsOutOfOrder) {
  EXPECT_THAT(ErrorOf([&] { held_.Say(Word::kCommit, ticket_, ReplyNamed("commit")); }),
              HasSubstr("no version is held"));
  EXPECT_THAT(ErrorOf([&] { held_.Renew(ticket_); }), HasSubstr("no version is held"));
  auto reload = Begin(kLongLease);
  EXPECT_EQ(AnswerTo("stage"), "staged");
  EXPECT_THAT(ErrorOf([&] { held_.Say(Word::kCommit, ticket_, ReplyNamed("commit")); }),
              HasSubstr("commit_weights: expected prepare_weights or abort_weights"));
  held_.Say(Word::kAbort, ticket_, ReplyNamed("abort"));
  EXPECT_THAT(reload.get(), Not(""));
}

// A controller that was held up for longer than its lease, while another staged a version of its own.
TEST_F(HeldReloadTest, IsDecidedOnByWhoStagedItAlone) {
  auto late = Begin(std::chrono::milliseconds(1));
  EXPECT_EQ(AnswerTo("stage"), "staged");
  const std::uint64_t late_ticket = ticket_;
  EXPECT_THAT(late.get(), HasSubstr("did not come"));
  answers_["stage"] = {};
  auto reload = Begin(kLongLease);
  EXPECT_EQ(AnswerTo("stage"), "staged");
  const auto refused = HasSubstr("expected the ticket of the version that is held, got one of another stage_weights");
  EXPECT_THAT(ErrorOf([&] { held_.Renew(late_ticket); }), refused);
  for (const Word word : {Word::kPrepare, Word::kCommit, Word::kAbort}) {
    EXPECT_THAT(ErrorOf([&] { held_.Say(word, late_ticket, ReplyNamed("abort")); }), refused);
  }
  held_.Say(Word::kPrepare, ticket_, ReplyNamed("prepare"));
  EXPECT_EQ(AnswerTo("prepare"), "prepared");
  held_.Say(Word::kCommit, ticket_, ReplyNamed("commit"));
  EXPECT_EQ(reload.get(), "");
}

TEST_F(HeldReloadTest, WaitsForNobodyLongerThanItsLease) {
  auto reload = Begin(std::chrono::milliseconds(1));
  EXPECT_THAT(reload.get(), HasSubstr("held for prepare_weights, which did not come in 1 ms"));
  EXPECT_EQ(AnswerTo("stage"), "staged");
  EXPECT_THAT(ErrorOf([&] { held_.Renew(ticket_); }), HasSubstr("its lease is over"));
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
