// What the policy learns: to answer "4 0 7 =" with the same three digits (or with them reversed). Prompts are split
// once into those for training and those held out. Rewards are given digit by digit, by a check in this program.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace rl_loop {

using Tokens = std::vector<std::int32_t>;

enum class TaskKind : std::uint8_t { kCopy, kReverse };

// Tokens 0 to 9 are the digits. Resource; immutable once built, except for the walk over training prompts, which is for
// one thread only.
class Task {
 public:
  static constexpr int kDigits = 3;
  static constexpr std::int32_t kEquals = 10;
  static constexpr int kVocabulary = 16;
  static constexpr int kHeldOut = 128;

  Task(TaskKind kind, std::uint64_t seed);

  const std::vector<Tokens>& held_out() const { return held_out_; }
  // The next training prompts. They are walked round and round, all 872 of them in a new random order each time.
  std::vector<Tokens> NextTrainingPrompts(int count);

  Tokens Answer(const Tokens& prompt) const;
  // One reward for each of kDigits digits: 1 if it is right, 0 if it is wrong or missing.
  std::vector<float> Rewards(const Tokens& prompt, const Tokens& answer) const;

 private:
  TaskKind kind_;
  std::mt19937_64 random_;
  std::vector<Tokens> held_out_;
  std::vector<Tokens> training_;
  std::size_t next_ = 0;
};

// The mean over digits, which is what "reward" means in tables and plots. Random digits get 0.1.
double MeanReward(const std::vector<std::vector<float>>& rewards);

}  // namespace rl_loop
