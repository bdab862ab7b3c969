// layercast sleep and layercast wake: have running engines lend their memory back, and take it again.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/subcommand.h"
#include "layercast/controller.h"
#include "src/control/engine_outcome.h"

namespace layercast::cli {
namespace {

void DeclareTags(CLI::App& app, std::vector<std::string>& tags) {
  DeclareList(app, "--tags", tags, "What of them: weights, kv_cache; by default both")
      ->check(EachOf(OneOf({"weights", "kv_cache"})));
}

// Prints what became of each engine. Throws the error of the first that failed.
void Print(Output& output, const std::vector<EngineOutcome>& outcomes, const std::string& done) {
  Json json = {{"outcomes", Json::array()}};
  std::string text;
  const EngineOutcome* failed = nullptr;
  for (const EngineOutcome& outcome : outcomes) {
    json["outcomes"].push_back({{"endpoint", outcome.endpoint},
                                {"ok", outcome.ok},
                                {"given_back", outcome.given_back},
                                {"error", outcome.error ? ErrorToJson(*outcome.error) : Json()}});
    text += outcome.endpoint + ": " + (outcome.ok ? done : "failed");
    if (outcome.given_back > 0) text += ", " + std::to_string(outcome.given_back) + " bytes given back";
    text += '\n';
    if (failed == nullptr && !outcome.ok) failed = &outcome;
  }
  output.Print(json, text);
  if (failed != nullptr) throw Error(failed->error->code(), NamingEngine(failed->endpoint, failed->error->what()));
}

class Sleep final : public Subcommand {
 public:
  const char* name() const override { return "sleep"; }
  const char* description() const override { return "Has engines lend their memory back until they are woken up"; }

  void Declare(CLI::App& app) override {
    DeclareList(app, "--engine", engines_, "Endpoints of the engines")->check(EachOf(Endpoint()))->required();
    app.add_option("--level", request_.level, "Of the weights, 1: keeps what is served in host memory; 2: discards it")
        ->check(CLI::IsMember({1, 2}))
        ->default_str("1");
    DeclareTags(app, request_.tags);
    app.add_option("--pause-mode", request_.pause_mode, "What becomes of sequences under way")
        ->check(OneOf({"wait", "abort"}))
        ->default_str("wait");
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    request_.timeout = timeout_.duration();
    Print(output, Controller(engines_, keys_.options()).Sleep(request_), "sleeps");
  }

 private:
  std::vector<std::string> engines_;
  SleepRequest request_;
  Timeout timeout_;
  KeyFlags keys_;
};

class WakeUp final : public Subcommand {
 public:
  const char* name() const override { return "wake"; }
  const char* description() const override { return "Has engines that sleep take their memory again"; }

  void Declare(CLI::App& app) override {
    DeclareList(app, "--engine", engines_, "Endpoints of the engines")->check(EachOf(Endpoint()))->required();
    DeclareTags(app, tags_);
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    Print(output, Controller(engines_, keys_.options()).WakeUp(tags_, timeout_.duration()), "is awake");
  }

 private:
  std::vector<std::string> engines_;
  std::vector<std::string> tags_;
  Timeout timeout_;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeSleep() { return std::make_unique<Sleep>(); }
std::unique_ptr<Subcommand> MakeWakeUp() { return std::make_unique<WakeUp>(); }

}  // namespace layercast::cli
