// layercast top: engines and publishers in a terminal, redrawn in place.
#include <memory>
#include <string>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/subcommand.h"
#include "cli/terminal/end_signal.h"
#include "cli/terminal/wrapped.h"
#include "cli/top/full_screen.h"
#include "cli/top/top_frame.h"
#include "src/control/watch/peer_watch.h"
#include "src/control/watch/peers_json.h"

namespace layercast::cli {
namespace {

class Top final : public Subcommand {
 public:
  const char* name() const override { return "top"; }
  const char* description() const override { return "Shows engines and publishers in a terminal, redrawn in place"; }

  void Declare(CLI::App& app) override {
    DeclareList(app, "--engine", engines_, "Engines")->check(EachOf(Endpoint()));
    DeclareList(app, "--publisher", publishers_, "Publishers")->check(EachOf(Endpoint()));
    app.add_flag("--once", once_, "Prints one picture and ends, as where standard output is no terminal");
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    if (engines_.empty() && publishers_.empty()) throw UsageError("expected --engine or --publisher");
    const Keys keys = keys_.keys();
    if (once_ || output.json() || !StandardOutputIsTerminal()) return PrintOnce(output, keys);
    Show(keys);
  }

 private:
  void PrintOnce(Output& output, const Keys& keys) const {
    const std::vector<PeerState> peers = PeerWatch(engines_, publishers_, keys).LookOnceAllAreAsked();
    std::string text;
    for (const std::string& line : TopFrame(peers, kMostColumns)) text += line + "\n";
    output.Print(PeersToJson(peers), text);
  }

  // Until it is ended. The signals are blocked before there are threads that would take them.
  void Show(const Keys& keys) const {
    EndSignal end;
    FullScreen screen;
    const PeerWatch watch(engines_, publishers_, keys);
    do {
      screen.TakeResize();  // a line that fills its row could not be wiped behind its end
      screen.Draw(TopFrame(watch.Look(), screen.size().columns - 1));
    } while (!end.WaitOr(screen.resized(), kRedraw));
  }

  static constexpr std::chrono::milliseconds kRedraw{500};

  std::vector<std::string> engines_;
  std::vector<std::string> publishers_;
  bool once_ = false;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeTop() { return std::make_unique<Top>(); }

}  // namespace layercast::cli
