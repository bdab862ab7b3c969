// layercast verify: compares every served byte with a cold load of a checkpoint.
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/read_answer.h"
#include "cli/arguments/subcommand.h"
#include "src/base/utf8.h"
#include "src/control/rpc.h"

namespace layercast::cli {
namespace {

std::string DifferenceText(const Json& difference) {
  return "rank " + difference.at("rank").dump() + ", '" + difference.at("tensor").get<std::string>() + "', byte " +
         difference.at("offset").dump() + ": serves " + difference.at("served").dump() + ", expected " +
         difference.at("expected").dump();
}

std::vector<std::string> DifferencesIn(const Json& result) {
  std::vector<std::string> texts;
  for (const Json& difference : result.at("differences")) texts.push_back(Escaped(DifferenceText(difference)));
  return texts;
}

std::string ExtentText(const Json& result) {
  return result.at("tensors").dump() + " tensors, " + result.at("bytes").dump() + " bytes: ";
}

class Verify final : public Subcommand {
 public:
  const char* name() const override { return "verify"; }
  const char* description() const override { return "Compares every served byte with a cold load of a checkpoint"; }

  void Declare(CLI::App& app) override {
    app.add_option("--engine", engine_, "Endpoint of the engine")->check(Endpoint())->required();
    checkpoint_.Declare(app, "The checkpoint's folder, which the engine can open; with --adapter, the adapter's");
    app.add_option("--adapter", adapter_,
                   "Compares this LoRA adapter's slot instead: every byte, its ranks and scales");
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    Json params = CheckpointJson(checkpoint_.Source());
    if (!adapter_.empty()) params["adapter"] = adapter_;
    const Json result = RpcClient("engine", engine_, keys_.keys()).Call("verify", params, timeout_.deadline());
    const std::vector<std::string> differences = ReadAnswer(engine_, [&] { return DifferencesIn(result); });
    std::string text = ReadAnswer(engine_, [&] { return ExtentText(result); });
    text += differences.empty() ? "equal\n" : "not equal\n";
    for (const std::string& difference : differences) text += "  " + difference + "\n";
    for (const Json& change : result.value("config_changes", Json::array())) {
      text += "  warning: " + change.get<std::string>() + "\n";
    }
    output.Print(result, text);
    if (differences.empty()) return;
    throw Error(ErrorCode::kCorrupt, "the engine does not serve " + checkpoint_.path() + ": " +
                                         std::to_string(differences.size()) + " tensors differ");
  }

 private:
  std::string engine_;
  std::string adapter_;
  CheckpointFlags checkpoint_;
  Timeout timeout_;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeVerify() { return std::make_unique<Verify>(); }

}  // namespace layercast::cli
