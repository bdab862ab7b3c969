// layercast rollback: has running engines serve again what they served before, which they have kept.
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/arguments/reload_outcomes.h"
#include "cli/arguments/subcommand.h"
#include "layercast/controller.h"

namespace layercast::cli {
namespace {

class Rollback final : public Subcommand {
 public:
  const char* name() const override { return "rollback"; }
  const char* description() const override { return "Has engines go back to the version that they served before"; }

  void Declare(CLI::App& app) override {
    DeclareList(app, "--engine", engines_, "Endpoints of the engines")->check(EachOf(Endpoint()))->required();
    app.add_option("--pause-mode", request_.pause_mode, "What the commit does to sequences under way")
        ->check(OneOf({"wait", "abort", "keep"}));
    app.add_flag("--all-or-none", request_.all_or_none, "Goes back on all engines, or on none of them");
    app.add_flag("--keep-adapters", request_.keep_adapters,
                 "Keep adapters that say that they were trained on another base");
    app.add_flag("--canary", canary_, "Ends the trial of the version that they have as canaries: it is not promoted");
    timeout_.Declare(app);
  }

  void Run(Output& output) override {
    if (canary_) return PrintOutcomes(output, Controller(engines_).Revoke({}, timeout_.duration()));
    request_.previous = true;
    request_.timeout = timeout_.duration();
    PrintOutcomes(output, Controller(engines_).ReloadWeights(request_));
  }

 private:
  std::vector<std::string> engines_;
  ReloadRequest request_;
  bool canary_ = false;
  Timeout timeout_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeRollback() { return std::make_unique<Rollback>(); }

}  // namespace layercast::cli
