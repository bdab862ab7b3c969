// layercast export: the served bytes of every rank, read back into files that `serve` can start from.
#include <memory>
#include <string>

#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/read_answer.h"
#include "cli/arguments/subcommand.h"
#include "src/base/utf8.h"
#include "src/control/rpc.h"

namespace layercast::cli {
namespace {

class Export final : public Subcommand {
 public:
  const char* name() const override { return "export"; }
  const char* description() const override {
    return "Writes what every rank serves into files that serve can start from";
  }

  void Declare(CLI::App& app) override {
    app.add_option("--engine", engine_, "Endpoint of the engine")->check(Endpoint())->required();
    app.add_option("--out", out_, "The folder to write, on the engine's host")->required();
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    const Json result = RpcClient("engine", engine_, keys_.keys())
                            .Call("export", {{"directory", AbsolutePath(out_)}}, timeout_.deadline());
    output.Print(result, ReadAnswer(engine_, [&] { return Text(result); }));
  }

 private:
  std::string Text(const Json& result) const {
    std::string text;
    for (const Json& file : result.at("files")) text += Escaped(out_ + "/" + file.get<std::string>()) + "\n";
    return text + VersionText(result.at("version")) + ": " + result.at("tensors").dump() + " tensors, " +
           result.at("bytes").dump() + " bytes\n";
  }

  std::string engine_;
  std::string out_;
  Timeout timeout_;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeExport() { return std::make_unique<Export>(); }

}  // namespace layercast::cli
