#include "examples/rl_loop/task.h"

#include <gmock/gmock.h>

#include <set>
#include <stdexcept>

namespace rl_loop {
namespace {

using testing::ElementsAre;

TEST(Task, SplitsAllThousandPromptsIntoHeldOutAndTraining) {
  Task task(TaskKind::kCopy, 1);
  std::set<Tokens> seen(task.held_out().begin(), task.held_out().end());
  EXPECT_EQ(seen.size(), 128U);
  for (const Tokens& prompt : task.NextTrainingPrompts(872)) EXPECT_TRUE(seen.insert(prompt).second);
  EXPECT_EQ(seen.size(), 1000U);
  for (const Tokens& prompt : seen) {
    ASSERT_EQ(prompt.size(), 4U);
    EXPECT_EQ(prompt[3], Task::kEquals);
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(prompt[static_cast<std::size_t>(i)] >= 0 && prompt[static_cast<std::size_t>(i)] <= 9);
  }
}

TEST(Task, WalksTrainingPromptsAgainAndNeverAHeldOutOne) {
  Task task(TaskKind::kCopy, 2);
  const std::set<Tokens> held_out(task.held_out().begin(), task.held_out().end());
  for (int i = 0; i < 60; ++i) {
    for (const Tokens& prompt : task.NextTrainingPrompts(32)) EXPECT_FALSE(held_out.contains(prompt));
  }
}

TEST(Task, AnswersWithTheSameDigitsOrWithThemReversed) {
  EXPECT_THAT(Task(TaskKind::kCopy, 1).Answer({4, 0, 7, Task::kEquals}), ElementsAre(4, 0, 7));
  EXPECT_THAT(Task(TaskKind::kReverse, 1).Answer({4, 0, 7, Task::kEquals}), ElementsAre(7, 0, 4));
  EXPECT_THROW(Task(TaskKind::kCopy, 1).Answer({4, 0}), std::invalid_argument);
}

TEST(Task, RewardsEachDigitByItself) {
  const Task task(TaskKind::kReverse, 1);
  const Tokens prompt = {4, 0, 7, Task::kEquals};
  EXPECT_THAT(task.Rewards(prompt, {7, 0, 4}), ElementsAre(1, 1, 1));
  EXPECT_THAT(task.Rewards(prompt, {4, 0, 7}), ElementsAre(0, 1, 0));
  EXPECT_THAT(task.Rewards(prompt, {7}), ElementsAre(1, 0, 0));
  EXPECT_THAT(task.Rewards(prompt, {7, 0, 4, 4}), ElementsAre(1, 1, 1));
  EXPECT_THAT(task.Rewards(prompt, {Task::kEquals, 15, 4}), ElementsAre(0, 0, 1));
}

TEST(Task, RewardsEveryAnswerOfAllThousandPromptsAsItsDefinitionSays) {
  Task task(TaskKind::kCopy, 3);
  std::vector<Tokens> prompts = task.NextTrainingPrompts(872);
  prompts.insert(prompts.end(), task.held_out().begin(), task.held_out().end());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    const Tokens& prompt = prompts[i];
    const Tokens answer = {prompts[(i + 1) % 1000][0], prompt[1], prompt[0]};
    const auto rewards = task.Rewards(prompt, answer);
    for (std::size_t token = 0; token < 3; ++token)
      EXPECT_EQ(rewards[token], prompt[token] == answer[token] ? 1.0F : 0.0F);
  }
}

TEST(MeanReward, IsTheShareOfRightDigits) {
  EXPECT_DOUBLE_EQ(MeanReward({{1, 0, 1}, {0, 0, 1}}), 0.5);
  EXPECT_DOUBLE_EQ(MeanReward({}), 0.0);
}

}  // namespace
}  // namespace rl_loop
