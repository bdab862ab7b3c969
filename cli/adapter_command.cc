// layercast adapter: loads, unloads, pins and lists the LoRA adapters of running engines.
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/read_answer.h"
#include "cli/arguments/subcommand.h"
#include "layercast/controller.h"
#include "src/base/utf8.h"
#include "src/control/engine_outcome.h"

namespace layercast::cli {
namespace {

// "'policy' run-17@42:..., slot 0, rank 16, 14 modules, 2 sequences, pinned"
std::string EntryText(const Json& entry) {
  std::string text = "  " + Quote(entry.at("name").get<std::string>()) + " ";
  if (entry.at("state") == "gone") return text + "is gone: " + Escaped(entry.at("why").get<std::string>()) + "\n";
  const bool in_slot = entry.at("tier") == "slot";
  text += VersionText(entry.at("version")) + (in_slot ? ", slot " + entry.at("slot").dump() : ", host copy") +
          ", rank " + entry.at("rank").dump() + ", " + entry.at("modules").dump() + " modules, " +
          entry.at("uses").dump() + " sequences";
  if (entry.at("state") == "retired") text += ", an older version in use";
  if (entry.at("pinned").get<bool>()) text += ", pinned";
  if (entry.at("zero_modules") != 0) text += ", B is zero in " + entry.at("zero_modules").dump();
  text += '\n';
  for (const Json& warning : entry.at("warnings")) text += "    warning: " + Escaped(warning.get<std::string>()) + "\n";
  return text;
}

class Adapter final : public Subcommand {
 public:
  const char* name() const override { return "adapter"; }
  const char* description() const override { return "Loads, unloads, pins or lists the LoRA adapters of engines"; }

  void Declare(CLI::App& app) override {
    app.add_option("action", action_, "What to do")
        ->check(OneOf({"load", "unload", "pin", "unpin", "list"}))
        ->required();
    DeclareList(app, "--engine", engines_, "Endpoints of the engines")->check(EachOf(Endpoint()))->required();
    app.add_option("--name", request_.name, "By which requests ask for the adapter");
    CLI::Option* const path =
        app.add_option("--path", request_.path, "To load: a folder of PEFT, which the engines can open");
    DeclareList(app, "--publisher", publishers_, "To load: endpoints of those that have published it: EP,EP")
        ->check(EachOf(Endpoint()))
        ->excludes(path);
    app.add_option("--version", version_, "LINEAGE@STEP of the publisher; by default its newest")->needs("--publisher");
    app.add_option("--adapter", request_.adapter, "What the version calls it; by default the only one that it has")
        ->needs("--publisher");
    app.add_flag("--pin", request_.pin, "To load: it is never evicted for another one");
    app.add_flag("--all-or-none", request_.all_or_none, "To load: on all engines, or on none of them");
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    if (action_ == "list") return List(output);
    if (request_.name.empty()) throw UsageError("adapter " + action_ + ": expected --name, got none");
    Controller controller(engines_, keys_.options());
    if (action_ == "load") return Report(output, Load(controller), "is");
    if (action_ == "unload") return Report(output, controller.UnloadAdapter(request_.name), "is unloaded");
    Report(output, controller.PinAdapter(request_.name, action_ == "pin"),
           action_ == "pin" ? "is pinned" : "is not pinned");
  }

 private:
  std::vector<EngineOutcome> Load(Controller& controller) {
    if (request_.path.empty() == publishers_.empty())
      throw UsageError("adapter load: expected one of --path and --publisher");
    if (!request_.path.empty()) request_.path = AbsolutePath(request_.path);
    if (!publishers_.empty()) request_.publisher = WithCommas(publishers_);
    if (!version_.empty()) request_.version = ParseVersion(version_);
    request_.timeout = timeout_.duration();
    return controller.LoadAdapter(request_);
  }

  void Report(Output& output, const std::vector<EngineOutcome>& outcomes, const std::string& done) const {
    Json json = {{"outcomes", Json::array()}};
    std::string text;
    const EngineOutcome* failed = nullptr;
    for (const EngineOutcome& outcome : outcomes) {
      json["outcomes"].push_back(OutcomeToJson(outcome));
      text += outcome.endpoint + ": " + Quote(request_.name) + " ";
      if (outcome.ok) {
        text += done + (outcome.version ? " " + VersionText(VersionToJson(outcome.version)) : "") + "\n";
        continue;
      }
      text += "failed" + (outcome.version ? ", still is " + VersionText(VersionToJson(outcome.version)) : "") + "\n";
      const bool is_first = failed == nullptr || failed->error->code() == ErrorCode::kCancelled;
      if (is_first) failed = &outcome;
    }
    output.Print(json, text);
    if (failed != nullptr) throw Error(failed->error->code(), NamingEngine(failed->endpoint, failed->error->what()));
  }

  void List(Output& output) const {
    Json json = {{"engines", Json::array()}};
    std::string text;
    for (const std::string& endpoint : engines_) {
      Json listed = Json::parse(Controller({endpoint}, keys_.options()).ListAdapters());
      text += ReadAnswer(endpoint, [&] {
        std::string lines = endpoint + ": " + listed.at("slots").dump() + " slots, " + listed.at("bytes").dump() +
                            " bytes on a rank; " + listed.at("host_adapters").dump() + " host adapters, " +
                            listed.at("host_bytes").dump() + " bytes\n";
        for (const Json& entry : listed.at("adapters")) lines += EntryText(entry);
        return lines;
      });
      listed["endpoint"] = endpoint;
      json["engines"].push_back(std::move(listed));
    }
    output.Print(json, text);
  }

  std::string action_;
  std::vector<std::string> engines_;
  AdapterRequest request_;
  std::vector<std::string> publishers_;
  std::string version_;
  Timeout timeout_;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeAdapter() { return std::make_unique<Adapter>(); }

}  // namespace layercast::cli
