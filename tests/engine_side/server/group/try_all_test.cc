// Calls to every rank: what each answers, whatever becomes of the others. The ranks are processes (scripted_rank.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "engine_side/server/group/rank_handle.h"
#include "src/base/unique_fd.h"
#include "tests/support/child_process.h"

namespace layercast {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using ::testing::ThrowsMessage;

constexpr std::chrono::milliseconds kPatience{20'000};
constexpr std::chrono::milliseconds kShort{50};

class TryAllTest : public ::testing::Test {
 protected:
  TryAllTest() {
    for (int rank = 0; rank < 3; ++rank) {
      RankLaunch launch;
      launch.program = test::FolderOfThisProgram() + "/scripted_rank";
      launch.arguments = {"--tp-rank", std::to_string(rank)};
      launch.rank = rank;
      ranks_.push_back(std::make_unique<RankHandle>(launch));
    }
  }

  std::vector<RankAnswer> Try(const std::string& method, const Json& params,
                              std::chrono::milliseconds timeout = kPatience) {
    return TryAll(ranks_, method, params, Deadline::After(timeout));
  }

  // Ranks 0 and 2 answered as ever.
  static void ExpectTheOthersAnswered(const std::vector<RankAnswer>& answers) {
    ASSERT_EQ(answers.size(), 3U);
    for (const std::size_t rank : {0U, 2U}) {
      EXPECT_FALSE(answers[rank].error) << answers[rank].error->what();
      EXPECT_EQ(answers[rank].result.value("rank", -1), static_cast<int>(rank));
    }
  }

  // Whether the rank's process ends, without being told to by this test.
  bool Ends(std::size_t rank) {
    const UniqueFd process(static_cast<int>(::syscall(SYS_pidfd_open, ranks_[rank]->pid(), 0)));
    pollfd ended = {process.get(), POLLIN, 0};
    return ::poll(&ended, 1, static_cast<int>(kPatience.count())) == 1;
  }

  std::vector<std::unique_ptr<RankHandle>> ranks_;
};

TEST_F(TryAllTest, GivesEveryRanksAnswerByRank) {
  const std::vector<RankAnswer> answers = Try("echo", {{"word", "hello"}});
  ExpectTheOthersAnswered(answers);
  EXPECT_FALSE(answers[1].error);
  EXPECT_EQ(answers[1].result, (Json{{"rank", 1}, {"params", {{"word", "hello"}}}}));
}

TEST_F(TryAllTest, NamesTheRankThatFailedAndKeepsTheOthersAnswers) {
  const std::vector<RankAnswer> answers = Try("fail", {{"ranks", {1}}});
  ExpectTheOthersAnswered(answers);
  ASSERT_TRUE(answers[1].error);
  EXPECT_EQ(answers[1].error->code(), ErrorCode::kCorrupt);
  EXPECT_STREQ(answers[1].error->what(), "rank 1: it was to fail");
}

TEST_F(TryAllTest, HearsOfAnAnswerBeforeTheOthersHaveAnswered) {
  std::vector<std::size_t> heard;
  TryAll(ranks_, "hang", {{"ranks", {0, 2}}}, Deadline::After(kPatience), [&](std::size_t rank, const RankAnswer&) {
    if (heard.empty()) {
      ranks_[0]->Kill();
      ranks_[2]->Kill();
    }
    heard.push_back(rank);
  });
  ASSERT_EQ(heard.size(), 3U);
  EXPECT_EQ(heard.front(), 1U);
}

TEST_F(TryAllTest, NoticesARankThatDiesOverACall) {
  const std::vector<RankAnswer> answers = Try("die", {{"ranks", {1}}});
  ExpectTheOthersAnswered(answers);
  ASSERT_TRUE(answers[1].error);
  EXPECT_EQ(answers[1].error->code(), ErrorCode::kUnavailable);
  EXPECT_EQ(answers[1].error->what(), "rank 1: process " + std::to_string(ranks_[1]->pid()) + " exited with status 1");
  EXPECT_FALSE(ranks_[1]->alive());
  // And says so of every call from then on.
  const std::vector<RankAnswer> later = Try("echo", Json::object());
  ExpectTheOthersAnswered(later);
  ASSERT_TRUE(later[1].error);
  EXPECT_THAT(later[1].error->what(), HasSubstr("exited with status 1"));
}

TEST_F(TryAllTest, GivesUpARankThatDoesNotAnswerAtTheDeadline) {
  const std::vector<RankAnswer> answers = Try("hang", {{"ranks", {1}}}, kShort);
  ASSERT_EQ(answers.size(), 3U);
  ASSERT_TRUE(answers[1].error);
  EXPECT_EQ(answers[1].error->code(), ErrorCode::kDeadlineExceeded);
  EXPECT_THAT(answers[1].error->what(), AllOf(StartsWith("rank 1: "), HasSubstr("'hang'")));
  EXPECT_TRUE(ranks_[1]->alive());
  ExpectTheOthersAnswered(Try("echo", Json::object()));
}

// More than a socket takes (200 KiB or so): whoever sends it waits for the rank to read.
TEST_F(TryAllTest, GivesUpARankThatReadsNothingWhileALongCallIsSentToIt) {
  ExpectTheOthersAnswered(Try("echo", Json::object()));  // all of them have started
  EXPECT_TRUE(Try("stop", {{"ranks", {1}}}, kShort)[1].error);
  const std::vector<RankAnswer> answers = Try("echo", {{"text", std::string(1U << 20, 'x')}});
  ExpectTheOthersAnswered(answers);
  ASSERT_TRUE(answers[1].error);
  EXPECT_EQ(answers[1].error->code(), ErrorCode::kUnavailable);
  EXPECT_THAT(answers[1].error->what(), AllOf(StartsWith("rank 1: "), HasSubstr("was silent")));
  EXPECT_TRUE(Ends(1)) << "it may go on some day, and until then others may wait for it";
  EXPECT_TRUE(ranks_[0]->alive() && ranks_[2]->alive());
}

TEST_F(TryAllTest, EndsARankThatClosesItsLinkAndGoesOn) {
  ExpectTheOthersAnswered(Try("close_link", {{"ranks", {1}}}));
  EXPECT_FALSE(ranks_[1]->alive());
  EXPECT_TRUE(Ends(1));
}

TEST_F(TryAllTest, WaitsForAllAndThrowsTheFirstFailureByRank) {
  EXPECT_THAT([&] { CallAll(ranks_, "fail", {{"ranks", {1, 2}}}, Deadline::After(kPatience)); },
              ThrowsMessage<Error>(StartsWith("rank 1: ")));
  EXPECT_EQ(CallAll(ranks_, "echo", Json::object(), Deadline::After(kPatience)).size(), 3U);
}

}  // namespace
}  // namespace layercast
