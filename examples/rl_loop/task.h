// What the policy learns: "4 0 7 =" is answered with the same three digits (or with them reversed). Prompts are split
// once into those for training and those held out; rewards are what this program checks, digit by digit.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace rl_loop {

using Tokens = std::vector<std::int32_t>;

enum class TaskKind : std::uint8_t { kCopy, kReverse };

// Tokens 0 to 9 are the digits. Immutable once built, except for the walk over training prompts: one thread only.
class Task {
 public:
  static constexpr int kDigits = 3;
  static constexpr std::int32_t kEquals = 10;
  static constexpr int kVocabulary = 16;
  static constexpr int kHeldOut = 128;

  Task(TaskKind kind, std::uint64_t seed);

  const std::vector<Tokens>& held_out() const { return held_out_; }
  // The next training prompts; walks all 872 of them in a new random order each time round.
  std::vector<Tokens> NextTrainingPrompts(int count);

  Tokens Answer(const Tokens& prompt) const;
  // One reward per token: 1 where the digit is right, 0 where it is not (or missing: the result has kDigits elements).
  std::vector<float> Rewards(const Tokens& prompt, const Tokens& answer) const;

 private:
  TaskKind kind_;
  std::mt19937_64 random_;
  std::vector<Tokens> held_out_;
  std::vector<Tokens> training_;
  std::size_t next_ = 0;
};

// Mean over digits: what "reward" means in tables and plots. Chance is 0.1 for who answers digits alone.
double MeanReward(const std::vector<std::vector<float>>& rewards);

}  // namespace rl_loop
