#include "examples/rl_loop/grpo.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/InferenceMode.h>
#include <gmock/gmock.h>

#include <cmath>
#include <stdexcept>

namespace rl_loop {
namespace {

using testing::Each;
using testing::FloatEq;

Rollout MakeRollout(const Tokens& answer, const std::vector<float>& rewards) {
  return {.prompt = {1, 2, 3, Task::kEquals},
          .answer = answer,
          .logprobs = std::vector<float>(answer.size(), std::log(1.0F / 16.0F)),
          .rewards = rewards};
}

float LogProbability(Policy& policy, const Tokens& prompt, const Tokens& answer, int position) {
  Tokens tokens = prompt;
  tokens.insert(tokens.end(), answer.begin(), answer.end());
  const at::Tensor logits = policy.Forward(at::tensor(tokens).to(at::kLong).unsqueeze(0));
  const auto row = static_cast<std::int64_t>(prompt.size()) - 1 + position;
  return at::log_softmax(logits, -1)[0][row][answer[static_cast<std::size_t>(position)]].item<float>();
}

// Rollouts without an engine: one of each prompt, at temperature 1, every sequence recomputed for each token.
std::vector<Rollout> SampleFromPolicy(Policy& policy, std::span<const Tokens> prompts, const Task& task) {
  const c10::InferenceMode no_gradients;
  std::vector<at::Tensor> rows;
  for (const Tokens& prompt : prompts) rows.push_back(at::tensor(prompt).to(at::kLong));
  at::Tensor tokens = at::stack(rows);
  std::vector<Rollout> rollouts(prompts.size());
  for (int step = 0; step < Task::kDigits; ++step) {
    const at::Tensor logprobs = at::log_softmax(policy.Forward(tokens).select(1, tokens.size(1) - 1), -1);
    const at::Tensor next = at::multinomial(logprobs.exp(), 1);
    const at::Tensor chosen = logprobs.gather(1, next);
    tokens = at::cat({tokens, next}, 1);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const auto row = static_cast<std::int64_t>(i);
      rollouts[i].answer.push_back(static_cast<std::int32_t>(next[row].item<std::int64_t>()));
      rollouts[i].logprobs.push_back(chosen[row].item<float>());
    }
  }
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    rollouts[i].prompt = prompts[i];
    rollouts[i].rewards = task.Rewards(prompts[i], rollouts[i].answer);
  }
  return rollouts;
}

TEST(Advantages, CompareSamplesOfOnePromptTokenByToken) {
  const std::vector<Rollout> rollouts = {
      MakeRollout({1, 2}, {1, 0}), MakeRollout({1, 3}, {1, 1}),  // first prompt
      MakeRollout({4, 4}, {0, 0}), MakeRollout({5, 4}, {1, 0}),  // second prompt
  };
  const auto advantages = Advantages(rollouts, 2);
  EXPECT_FLOAT_EQ(advantages[0][0], 0.0F);  // both samples earned 1
  EXPECT_FLOAT_EQ(advantages[1][0], 0.0F);
  EXPECT_NEAR(advantages[0][1], -1.0F, 1e-3);  // mean 0.5, deviation 0.5
  EXPECT_NEAR(advantages[1][1], 1.0F, 1e-3);
  EXPECT_NEAR(advantages[2][0], -1.0F, 1e-3);
  EXPECT_NEAR(advantages[3][0], 1.0F, 1e-3);
  EXPECT_FLOAT_EQ(advantages[2][1], 0.0F);
}

TEST(Advantages, AreZeroWhereEverySampleEarnedTheSame) {
  const std::vector<Rollout> rollouts(16, MakeRollout({1, 2, 3}, {1, 0, 1}));
  for (const auto& row : Advantages(rollouts, 16)) EXPECT_THAT(row, Each(FloatEq(0.0F)));
}

TEST(Advantages, RefuseRolloutsThatDoNotFormGroups) {
  const std::vector<Rollout> rollouts(3, MakeRollout({1}, {1}));
  EXPECT_THROW(Advantages(rollouts, 2), std::invalid_argument);
  EXPECT_THROW(Advantages({}, 2), std::invalid_argument);
  const std::vector<Rollout> uneven = {MakeRollout({1}, {1}), MakeRollout({1, 2}, {1, 1})};
  EXPECT_THROW(Advantages(uneven, 2), std::invalid_argument);
}

TEST(Grpo, MakesARewardedTokenMoreLikelyAndAPunishedOneLess) {
  torch::manual_seed(5);
  Policy policy(PolicyConfig{});
  Grpo grpo(policy, {.samples_per_prompt = 2, .epochs = 1, .entropy_bonus = 0.0});
  const Rollout good = MakeRollout({7, 2}, {1, 0});
  const Rollout bad = MakeRollout({8, 2}, {0, 0});
  const float good_before = LogProbability(policy, good.prompt, good.answer, 0);
  const float bad_before = LogProbability(policy, bad.prompt, bad.answer, 0);
  const UpdateReport report = grpo.Update(std::vector<Rollout>{good, bad});
  EXPECT_GT(LogProbability(policy, good.prompt, good.answer, 0), good_before);
  EXPECT_LT(LogProbability(policy, bad.prompt, bad.answer, 0), bad_before);
  EXPECT_NEAR(report.entropy, std::log(16.0), 0.1);  // an untrained policy knows nothing
  EXPECT_LT(report.logprob_gap, 0.3);
}

TEST(Grpo, LeavesThePolicyAloneWhereNothingTellsSamplesApart) {
  torch::manual_seed(6);
  Policy policy(PolicyConfig{});
  const at::Tensor before = policy.named_parameters()["lm_head.weight"].detach().clone();
  Grpo grpo(policy, {.samples_per_prompt = 2, .epochs = 2, .entropy_bonus = 0.0});
  grpo.Update(std::vector<Rollout>(2, MakeRollout({1, 2, 3}, {1, 1, 1})));
  EXPECT_TRUE(at::equal(before, policy.named_parameters()["lm_head.weight"]));
}

TEST(Grpo, LearnsToCopyFromRewardsAlone) {
  torch::manual_seed(1);
  at::set_num_threads(1);
  Task task(TaskKind::kCopy, 1);
  Policy policy(PolicyConfig{});
  const GrpoOptions options{.samples_per_prompt = 16, .updates = 12};
  Grpo grpo(policy, options);
  for (int update = 0; update < options.updates; ++update) {
    std::vector<Tokens> prompts;
    for (const Tokens& prompt : task.NextTrainingPrompts(16)) prompts.insert(prompts.end(), 16, prompt);
    grpo.Update(SampleFromPolicy(policy, prompts, task));
  }
  std::vector<std::vector<float>> rewards;
  for (const Rollout& rollout : SampleFromPolicy(policy, task.held_out(), task)) rewards.push_back(rollout.rewards);
  EXPECT_GT(MeanReward(rewards), 0.3);  // chance is at most 0.1
}

}  // namespace
}  // namespace rl_loop
