// layercast promote: has engines keep the version that they have on trial.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/reload_outcomes.h"
#include "cli/arguments/subcommand.h"
#include "layercast/controller.h"

namespace layercast::cli {
namespace {

class Promote final : public Subcommand {
 public:
  const char* name() const override { return "promote"; }
  const char* description() const override { return "Has engines keep the version that they have on trial"; }

  void Declare(CLI::App& app) override {
    DeclareList(app, "--engine", engines_, "Endpoints of the canaries")->check(EachOf(Endpoint()))->required();
    app.add_option("--version", version_, "LINEAGE@STEP: refuses if another version is on trial");
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    std::optional<Version> version;
    if (!version_.empty()) version = ParseVersion(version_);
    PrintOutcomes(output, Controller(engines_, keys_.options()).Promote(version, timeout_.duration()));
  }

 private:
  std::vector<std::string> engines_;
  std::string version_;
  Timeout timeout_;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakePromote() { return std::make_unique<Promote>(); }

}  // namespace layercast::cli
