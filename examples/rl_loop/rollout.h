// What an engine sampled, with the rewards that this program gives it. Handed from sampling to the update.
#pragma once

#include <vector>

#include "examples/rl_loop/task.h"

namespace rl_loop {

// Value. All rollouts of an update have prompts of one length and answers of one length.
struct Rollout {
  Tokens prompt;
  Tokens answer;
  std::vector<float> logprobs;  // of each answer token, as the engine that sampled it computed them
  std::vector<float> rewards;   // of each answer token
};

}  // namespace rl_loop
