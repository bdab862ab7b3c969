// A generator over one rank, which is a process (scripted_rank.cc): it gives each sequence the token after its last
// one, when the gate lets it. Used by the tests of generation.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/server/generate/generator.h"
#include "tests/engine_side/server/step_gate.h"
#include "tests/support/child_process.h"

namespace layercast::testing {

inline constexpr std::chrono::milliseconds kLong{20'000};
inline constexpr std::int64_t kEndless = 1'000'000;
inline constexpr std::int32_t kDeadlyToken = 666;
inline constexpr std::int32_t kBrokenToken = 777;

inline Deadline Soon() { return Deadline::After(kLong); }

inline RankGroupOptions OneRank(const std::string& model, std::int64_t max_num_seqs = RankGroupOptions().max_num_seqs) {
  RankGroupOptions options;
  options.max_num_seqs = max_num_seqs;
  options.program = test::FolderOfThisProgram() + "/scripted_rank";
  options.model = model;
  return options;
}

// What is left of a sequence that has ended.
struct EndedSequence {
  std::vector<std::int32_t> tokens;
  std::vector<double> logprobs;
  std::vector<Version> versions;  // the base's
  std::optional<Error> error;

  explicit EndedSequence(const Sequence& sequence)
      : tokens(sequence.tokens), logprobs(sequence.logprobs), error(sequence.error) {
    for (const TokenVersion& version : sequence.versions) versions.push_back(version.base);
  }
};

struct Answer {
  EndedSequence sequence;
  std::string finish;
};

inline Answer Get(std::future<Answer>& answer) {
  if (answer.wait_for(kLong) != std::future_status::ready) throw std::runtime_error("the sequence did not end");
  return answer.get();
}

// Without a gate every step is answered at once.
class GeneratorTest : public ::testing::Test {
 protected:
  explicit GeneratorTest(const std::string& model = "") : GeneratorTest(OneRank(model)) {}
  explicit GeneratorTest(const RankGroupOptions& options)
      : ranks_(options), generator_(std::make_unique<Generator>(ranks_, adapters_)) {}

  std::future<Answer> Add(std::vector<std::int32_t> prompt, std::int64_t max_new, std::vector<std::int32_t> stop = {},
                          std::stop_token abandoned = {}) {
    SequenceRequest request;
    request.prompt = std::move(prompt);
    request.max_new = max_new;
    request.stop_tokens = std::move(stop);
    auto promise = std::make_shared<std::promise<Answer>>();
    const auto done = [promise](const Sequence& sequence, const char* finish) {
      promise->set_value({EndedSequence(sequence), finish});
    };
    generator_->Add(std::move(request), done, std::move(abandoned));
    return promise->get_future();
  }

  static Version Step(std::uint64_t step) {
    Version version;
    version.lineage = "run";
    version.step = step;
    return version;
  }

  void Commit(std::uint64_t step, PauseMode mode = PauseMode::kWait, const std::function<void()>& commit = [] {}) {
    const auto run = [&] {
      commit();
      return Step(step);
    };
    generator_->Commit(mode, run, Soon());
  }

  AdapterRegistry adapters_{0, AdapterSwitch::kFinish};
  RankGroup ranks_;
  std::unique_ptr<Generator> generator_;
};

class GatedGeneratorTest : public GeneratorTest {
 protected:
  GatedGeneratorTest() : GatedGeneratorTest(std::make_unique<StepGate>(), RankGroupOptions().max_num_seqs) {}
  GatedGeneratorTest(std::unique_ptr<StepGate> gate, std::int64_t max_num_seqs)
      : GeneratorTest(OneRank(gate->folder(), max_num_seqs)), gate_(std::move(gate)) {}

  // Returns when the sequence's first token of the present version is there, and its second one is being asked for.
  std::future<Answer> AddAndAwaitAToken(std::int64_t max_new, std::stop_token abandoned = {}) {
    std::future<Answer> answer = Add({10, 20}, max_new, {}, std::move(abandoned));
    gate_->AwaitStep();
    gate_->Allow();
    gate_->AwaitStep();
    return answer;
  }
  // Lets steps go on one by one for as long as `call` waits between them.
  void AllowStepsUntilDone(std::future<void>& call) const {
    while (call.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) gate_->Allow();
    call.get();
  }

  void PauseKeepingSequences() {
    auto pause =
        std::async(std::launch::async, [this] { generator_->Pause(PauseMode::kKeep, std::chrono::hours(1), Soon()); });
    AllowStepsUntilDone(pause);
  }
  // Returns once a step was asked for, and answered, since the call.
  void AwaitAWholeStep() {
    gate_->Allow(2);
    gate_->AwaitStep();
    gate_->AwaitStep();
  }

  // Ends sequences that would go on for ever.
  void AbortSequences() {
    auto end = std::async(std::launch::async, [this] { Commit(99, PauseMode::kAbort); });
    AllowStepsUntilDone(end);
  }

  std::unique_ptr<StepGate> gate_;
};

// Two at once, where there are more.
class FewSequencesTest : public GatedGeneratorTest {
 protected:
  FewSequencesTest() : GatedGeneratorTest(std::make_unique<StepGate>(), 2) {}
};

}  // namespace layercast::testing
