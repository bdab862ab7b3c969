#include "examples/rl_loop/loop.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <utility>

#include "examples/rl_loop/expected_served.h"
#include "examples/support/engine_process.h"
#include "layercast/adapters/adapter_weights.h"
#include "layercast/controller.h"
#include "layercast/publisher.h"
#include "layercast/torch/publish.h"

namespace rl_loop {
namespace {

using Clock = std::chrono::steady_clock;

constexpr const char* kAdapterName = "policy";

double MillisecondsSince(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

class Loop {
 public:
  explicit Loop(const LoopOptions& options)
      : options_(options),
        task_(options.task, options.seed),
        policy_(SeededPolicy(options)),
        grpo_(*policy_, options.grpo),
        engine_({.program = options.program,
                 .model = options.folder,
                 .tp_size = options.tp_size,
                 .quantization = "fp8_per_channel",
                 .adapter_slots = options.travels == Travels::kAdapter ? 2 : 0}),  // one is filled, one answers
        controller_({engine_.endpoint()}),
        publisher_({.endpoint = "tcp://127.0.0.1:0"}) {}

  RunHistory Run(const Progress& progress) {
    const auto start = Clock::now();
    RunHistory history;
    for (int step = 0; step <= options_.grpo.updates; ++step) {
      StepRecord record{.step = step, .held_out_reward = 0, .training_reward = 0, .update = {}, .sync = {}};
      if (options_.travels != Travels::kNothing) record.sync = Sync(step);
      record.held_out_reward = Reward(Sample(task_.held_out(), Seed(step, 0)));
      if (step < options_.grpo.updates) Learn(step, record);
      history.steps.push_back(std::move(record));
      history.seconds = MillisecondsSince(start) / 1000;
      progress(history);
    }
    return history;
  }

 private:
  // A seeded policy, so that the engine starts from the same untrained weights.
  static std::shared_ptr<Policy> SeededPolicy(const LoopOptions& options) {
    torch::manual_seed(options.seed);
    auto policy = std::make_shared<Policy>(PolicyConfig{});
    SaveCheckpoint(*policy, options.folder);
    if (options.travels == Travels::kAdapter) policy->LearnAdapter(options.lora);
    return policy;
  }

  // Publishes the policy as it is, and brings the engine to that version.
  SyncRecord Sync(int step) {
    SyncRecord record;
    const auto start = Clock::now();
    const bool adapter = options_.travels == Travels::kAdapter;
    const auto published = publisher_.Publish({.lineage = "rl_loop", .step = static_cast<std::uint64_t>(step)},
                                              adapter ? Adapter() : Weights());
    record.publish_ms = MillisecondsSince(start);
    const layercast::EngineOutcome outcome = adapter ? LoadAdapter(published) : Reload(published);
    if (!outcome.ok) throw layercast::Error(*outcome.error);
    served_ = outcome.version;

    const auto report = nlohmann::json::parse(outcome.report);
    if (!adapter) CheckServedBytes(report);
    record.total_ms = report.at("total_ms").get<double>();
    record.stage_ms = report.at("stage_ms").get<std::map<std::string, double>>();
    record.bytes = report.at("bytes").get<std::uint64_t>();
    record.channel = report.at("channel").at("name").get<std::string>();
    record.gb_per_s = report.at("channel").at("gb_per_s").get<double>();
    return record;
  }

  layercast::Weights Weights() const {
    layercast::Weights weights = layercast::TorchWeights(*policy_);
    weights.config = policy_->config().ToJson();  // an engine of another configuration refuses them
    return weights;
  }

  layercast::EngineOutcome Reload(const layercast::PublishedVersion& published) {
    return controller_.ReloadWeights({.publisher = publisher_.endpoint(), .version = published.version()}).front();
  }

  // The factors alone: the engine has the base, which never changes.
  layercast::Weights Adapter() const {
    return layercast::Together({{.name = kAdapterName,
                                 .config = options_.lora.ToJson(),
                                 .weights = layercast::TorchWeights(policy_->Learned())}});
  }

  layercast::EngineOutcome LoadAdapter(const layercast::PublishedVersion& published) {
    return controller_
        .LoadAdapter({.name = kAdapterName, .publisher = publisher_.endpoint(), .version = published.version()})
        .front();
  }

  void CheckServedBytes(const nlohmann::json& report) const {
    for (int rank = 0; rank < options_.tp_size; ++rank) {
      const std::string expected = ExpectedServedDigest(*policy_, rank, options_.tp_size).ToHex();
      const auto served = report.at("ranks").at(static_cast<std::size_t>(rank)).at("served_digest").get<std::string>();
      if (served != expected) {
        throw std::runtime_error("rank " + std::to_string(rank) + " serves " + served + ", expected " + expected +
                                 ": the trainer's weights, quantized");
      }
    }
  }

  void Learn(int step, StepRecord& record) {
    std::vector<Tokens> prompts;
    for (const Tokens& prompt : task_.NextTrainingPrompts(options_.prompts)) {
      prompts.insert(prompts.end(), static_cast<std::size_t>(options_.grpo.samples_per_prompt), prompt);
    }
    const std::vector<Rollout> rollouts = Sample(prompts, Seed(step, 1));
    record.training_reward = Reward(rollouts);
    record.update = grpo_.Update(rollouts);
  }

  std::vector<Rollout> Sample(const std::vector<Tokens>& prompts, std::uint64_t seed) {
    const auto sequences = controller_.Generate({.prompts = prompts,
                                                 .max_new = Task::kDigits,
                                                 .temperature = 1,
                                                 .seed = seed,
                                                 .adapter = options_.travels == Travels::kAdapter ? kAdapterName : ""});
    std::vector<Rollout> rollouts;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      CheckVersion(sequences.at(i));
      rollouts.push_back({.prompt = prompts[i],
                          .answer = sequences[i].tokens,
                          .logprobs = {sequences[i].logprobs.begin(), sequences[i].logprobs.end()},
                          .rewards = task_.Rewards(prompts[i], sequences[i].tokens)});
    }
    return rollouts;
  }

  void CheckVersion(const layercast::GeneratedSequence& sequence) const {
    if (!served_) return;
    for (const auto& span : sequence.spans) {
      const layercast::Version& version = span.adapter.value_or(span.version);
      if (version == *served_) continue;
      throw std::runtime_error("tokens of version " + version.ToString() + ", expected " + served_->ToString());
    }
  }

  // Seeds such that every sequence of a run has one of its own.
  std::uint64_t Seed(int step, int use) const {
    return (options_.seed << 40) + (static_cast<std::uint64_t>(step) << 20) + (static_cast<std::uint64_t>(use) << 16);
  }

  static double Reward(const std::vector<Rollout>& rollouts) {
    std::vector<std::vector<float>> rewards;
    for (const Rollout& rollout : rollouts) rewards.push_back(rollout.rewards);
    return MeanReward(rewards);
  }

  const LoopOptions& options_;
  Task task_;
  std::shared_ptr<Policy> policy_;
  Grpo grpo_;
  examples::EngineProcess engine_;
  layercast::Controller controller_;
  layercast::Publisher publisher_;
  std::optional<layercast::Version> served_;  // of weights or adapter; empty while the engine serves what it began with
};

}  // namespace

RunHistory RunLoop(const LoopOptions& options, const Progress& progress) { return Loop(options).Run(progress); }

}  // namespace rl_loop
