#include "examples/rl_loop/task.h"

#include <algorithm>
#include <stdexcept>

namespace rl_loop {
namespace {

Tokens Prompt(int number) { return {number / 100 % 10, number / 10 % 10, number % 10, Task::kEquals}; }

}  // namespace

Task::Task(TaskKind kind, std::uint64_t seed) : kind_(kind), random_(seed) {
  for (int number = 0; number < 1000; ++number) training_.push_back(Prompt(number));
  std::ranges::shuffle(training_, random_);
  held_out_.assign(training_.end() - kHeldOut, training_.end());
  training_.resize(training_.size() - kHeldOut);
}

std::vector<Tokens> Task::NextTrainingPrompts(int count) {
  std::vector<Tokens> prompts;
  for (int i = 0; i < count; ++i) {
    if (next_ == training_.size()) {
      std::ranges::shuffle(training_, random_);
      next_ = 0;
    }
    prompts.push_back(training_[next_++]);
  }
  return prompts;
}

Tokens Task::Answer(const Tokens& prompt) const {
  if (prompt.size() != kDigits + 1) throw std::invalid_argument("a prompt is three digits and the equals sign");
  Tokens answer(prompt.begin(), prompt.end() - 1);
  if (kind_ == TaskKind::kReverse) std::ranges::reverse(answer);
  return answer;
}

std::vector<float> Task::Rewards(const Tokens& prompt, const Tokens& answer) const {
  const Tokens expected = Answer(prompt);
  std::vector<float> rewards(kDigits, 0.0F);
  for (std::size_t i = 0; i < std::min(expected.size(), answer.size()); ++i) {
    rewards[i] = answer[i] == expected[i] ? 1.0F : 0.0F;
  }
  return rewards;
}

double MeanReward(const std::vector<std::vector<float>>& rewards) {
  double sum = 0;
  std::size_t count = 0;
  for (const std::vector<float>& tokens : rewards) {
    for (const float reward : tokens) sum += reward;
    count += tokens.size();
  }
  return count == 0 ? 0.0 : sum / static_cast<double>(count);
}

}  // namespace rl_loop
