// layercast generate: tokens from a running engine, and the version that each span of them came from.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/read_answer.h"
#include "cli/arguments/staleness_flags.h"
#include "cli/arguments/subcommand.h"
#include "layercast/controller.h"
#include "src/control/rpc.h"

namespace layercast::cli {
namespace {

std::string AnswerText(const Json& answer) {
  std::string text;
  for (const Json& token : answer.at("tokens")) text += (text.empty() ? "" : ",") + token.dump();
  text += "  (" + answer.at("finish").get<std::string>() + ")\n";
  if (answer.contains("logprobs")) {
    text += "  log-probabilities";
    for (const Json& logprob : answer.at("logprobs")) {
      char number[32];
      std::snprintf(number, sizeof(number), " %.4f", logprob.get<double>());
      text += number;
    }
    text += '\n';
  }
  for (const Json& span : answer.at("spans")) {
    text +=
        "  tokens " + span.at("start").dump() + " to " + span.at("end").dump() + ": " + VersionText(span.at("version"));
    if (span.contains("adapter")) text += ", adapter " + VersionText(span["adapter"]);
    text += '\n';
  }
  return text;
}

class Generate final : public Subcommand {
 public:
  const char* name() const override { return "generate"; }
  const char* description() const override {
    return "Generates tokens on a running engine, and tells the version of each";
  }

  void Declare(CLI::App& app) override {
    app.add_option("--engine", engine_, "Endpoint of the engine")->check(Endpoint())->required();
    DeclareList(app, "--tokens", tokens_, "The prompt: 3,11,4")->required();
    app.add_option("--adapter", adapter_, "Name of a LoRA adapter that the engine has; by default the base alone");
    app.add_option("--adapter-timeout", adapter_timeout_,
                   "Seconds to wait for an adapter in a host copy to be in a slot")
        ->check(Number(0))
        ->capture_default_str();
    app.add_option("--max-new", max_new_, "The most tokens that are generated")
        ->check(WholeNumber(1))
        ->capture_default_str();
    app.add_option("--temperature", temperature_, "0 is greedy")->check(Number(0))->capture_default_str();
    app.add_option("--seed", seed_, "Of sampling")->check(WholeNumber(0))->capture_default_str();
    app.add_flag("--ignore-eos", ignore_eos_,
                 "Goes on after a token that is an eos_token_id of the model's config.json or generation_config.json");
    app.add_flag("--logprobs", logprobs_, "Also prints the log-probability of each token");
    app.add_option("--repeat", repeat_, "Asks so many times, one after the other")->check(WholeNumber(1));
    CLI::Option* const least = app.add_option("--least-version", least_version_,
                                              "LINEAGE@STEP: an engine that serves an earlier version refuses");
    app.add_flag("--wait", wait_, "Waits for that version, within --timeout")->needs(least);
    staleness_.Declare(app, "Steps: an engine that is further behind the newest of its publisher refuses",
                       "the engine");
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    const Deadline deadline = timeout_.deadline();
    const Json params = {{"tokens", tokens_},
                         {"max_new", max_new_},
                         {"temperature", temperature_},
                         {"seed", seed_},
                         {"ignore_eos", ignore_eos_},
                         {"logprobs", logprobs_},
                         {"adapter", adapter_},
                         {"adapter_timeout_ms", std::llround(1000 * adapter_timeout_)},
                         {"max_staleness", MaxStaleness()},
                         {"least_version", LeastVersion(deadline)}};
    RpcClient engine("engine", engine_, keys_.keys());
    if (repeat_ == 0) {
      const Json answer = engine.Call("generate", params, deadline);
      return output.Print(answer, ReadAnswer(engine_, [&] { return AnswerText(answer); }));
    }
    Json answers = Json::array();
    std::string text;
    for (int i = 0; i < repeat_; ++i) {
      answers.push_back(engine.Call("generate", params, deadline));
      text += ReadAnswer(engine_, [&] { return AnswerText(answers.back()); });
    }
    output.Print({{"answers", answers}}, text);
  }

 private:
  // Waits for it, or has the engine refuse if it serves an earlier one.
  Json LeastVersion(Deadline deadline) const {
    if (least_version_.empty()) return nullptr;
    const Version least = ParseVersion(least_version_);
    if (wait_) Controller({engine_}, keys_.options()).WaitForVersion(least, deadline.Remaining());
    return VersionToJson(least);
  }

  Json MaxStaleness() const {
    if (!staleness_.steps()) return nullptr;
    Json bound = {{"steps", *staleness_.steps()}};
    if (const auto within = staleness_.heard_within()) bound["heard_within_ms"] = within->count();
    return bound;
  }

  std::string engine_;
  StalenessFlags staleness_;
  std::string least_version_;
  bool wait_ = false;
  std::vector<std::int32_t> tokens_;
  std::string adapter_;
  double adapter_timeout_ = 60;
  std::int64_t max_new_ = 16;
  double temperature_ = 0;
  std::uint64_t seed_ = 0;
  bool ignore_eos_ = false;
  bool logprobs_ = false;
  int repeat_ = 0;
  Timeout timeout_;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeGenerate() { return std::make_unique<Generate>(); }

}  // namespace layercast::cli
