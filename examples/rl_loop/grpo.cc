#include "examples/rl_loop/grpo.h"

#include <ATen/ATen.h>
#include <torch/nn/utils/clip_grad.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace rl_loop {
namespace {

// The rollouts of one update as tensors, [rollouts, tokens] each.
struct Batch {
  at::Tensor inputs;  // prompt and answer without its last token: what the policy reads
  at::Tensor answers;
  at::Tensor engine_logprobs;
  at::Tensor advantages;
};

template <typename Row>
at::Tensor Stack(std::span<const Rollout> rollouts, at::ScalarType dtype, const Row& row) {
  std::vector<at::Tensor> rows;
  rows.reserve(rollouts.size());
  for (std::size_t i = 0; i < rollouts.size(); ++i) rows.push_back(at::tensor(row(i)).to(dtype));
  return at::stack(rows);
}

Batch MakeBatch(std::span<const Rollout> rollouts, int samples_per_prompt) {
  const auto advantages = Advantages(rollouts, samples_per_prompt);
  const auto inputs = [&](std::size_t i) {
    Tokens tokens = rollouts[i].prompt;
    tokens.insert(tokens.end(), rollouts[i].answer.begin(), rollouts[i].answer.end() - 1);
    return tokens;
  };
  return {.inputs = Stack(rollouts, at::kLong, inputs),
          .answers = Stack(rollouts, at::kLong, [&](std::size_t i) { return rollouts[i].answer; }),
          .engine_logprobs = Stack(rollouts, at::kFloat, [&](std::size_t i) { return rollouts[i].logprobs; }),
          .advantages = Stack(rollouts, at::kFloat, [&](std::size_t i) { return advantages[i]; })};
}

void CheckShapes(std::span<const Rollout> rollouts, int samples_per_prompt) {
  if (rollouts.empty() || rollouts.size() % static_cast<std::size_t>(samples_per_prompt) != 0) {
    throw std::invalid_argument("an update needs whole groups of samples");
  }
  for (const Rollout& rollout : rollouts) {
    const std::size_t length = rollouts[0].answer.size();
    if (rollout.prompt.size() != rollouts[0].prompt.size() || length == 0 || rollout.answer.size() != length ||
        rollout.logprobs.size() != length || rollout.rewards.size() != length) {
      throw std::invalid_argument("the rollouts of an update differ in length");
    }
  }
}

struct Loss {
  at::Tensor loss, entropy, gap, clipped;  // scalars
};

Loss ComputeLoss(Policy& policy, const Batch& batch, const GrpoOptions& options) {
  const std::int64_t length = batch.answers.size(1);
  const at::Tensor logits = policy.Forward(batch.inputs).slice(1, batch.inputs.size(1) - length);
  const at::Tensor all = at::log_softmax(logits, -1);
  const at::Tensor chosen = all.gather(2, batch.answers.unsqueeze(2)).squeeze(2);
  const at::Tensor entropy = -(all.exp() * all).sum(-1).mean();
  const at::Tensor gap = chosen - batch.engine_logprobs;
  const at::Tensor ratio = gap.exp();
  const at::Tensor cut = ratio.clamp(1 - options.clip_low, 1 + options.clip_high);
  const at::Tensor gain = at::minimum(ratio * batch.advantages, cut * batch.advantages).mean();
  return {-gain - options.entropy_bonus * entropy, entropy, gap.detach().abs().mean(),
          ratio.ne(cut).to(at::kFloat).mean()};
}

}  // namespace

std::vector<std::vector<float>> Advantages(std::span<const Rollout> rollouts, int samples_per_prompt) {
  const auto group = static_cast<std::size_t>(samples_per_prompt);
  CheckShapes(rollouts, samples_per_prompt);
  std::vector<std::vector<float>> advantages(rollouts.size(), std::vector<float>(rollouts[0].answer.size()));
  for (std::size_t first = 0; first < rollouts.size(); first += group) {
    for (std::size_t token = 0; token < advantages[first].size(); ++token) {
      double sum = 0;
      double squares = 0;
      for (std::size_t i = first; i < first + group; ++i) {
        const double reward = rollouts[i].rewards[token];
        sum += reward;
        squares += reward * reward;
      }
      const double mean = sum / samples_per_prompt;
      const double deviation = std::sqrt(std::max(0.0, squares / samples_per_prompt - mean * mean));
      for (std::size_t i = first; i < first + group; ++i) {
        advantages[i][token] = static_cast<float>((rollouts[i].rewards[token] - mean) / (deviation + 1e-4));
      }
    }
  }
  return advantages;
}

Grpo::Grpo(Policy& policy, const GrpoOptions& options)
    : policy_(policy),
      options_(options),
      optimizer_(policy.parameters(),
                 torch::optim::AdamWOptions(options.learning_rate).betas({0.9, 0.95}).weight_decay(0.0)) {}

UpdateReport Grpo::Update(std::span<const Rollout> rollouts) {
  const Batch batch = MakeBatch(rollouts, options_.samples_per_prompt);
  SetLearningRate();
  UpdateReport report;
  for (int epoch = 0; epoch < options_.epochs; ++epoch) {
    const Loss loss = ComputeLoss(policy_, batch, options_);
    optimizer_.zero_grad();
    loss.loss.backward();
    torch::nn::utils::clip_grad_norm_(policy_.parameters(), options_.max_gradient_norm);
    optimizer_.step();
    if (epoch == 0) {
      report.loss = loss.loss.item<double>();
      report.entropy = loss.entropy.item<double>();
      report.logprob_gap = loss.gap.item<double>();
    }
    report.clipped = loss.clipped.item<double>();
  }
  ++updates_done_;
  return report;
}

void Grpo::SetLearningRate() {
  const double progress = std::min(1.0, static_cast<double>(updates_done_) / options_.updates);
  const double rate = options_.learning_rate + (options_.final_learning_rate - options_.learning_rate) * progress;
  for (auto& group : optimizer_.param_groups()) group.options().set_lr(rate);
}

}  // namespace rl_loop
