// layercast reload: has running engines take new weights, all at the same time, and reports each one's outcome.
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/otlp_flag.h"
#include "cli/arguments/reload_outcomes.h"
#include "cli/arguments/subcommand.h"
#include "cli/canary/canary_flags.h"
#include "cli/terminal/interrupted.h"
#include "cli/terminal/progress_bar.h"
#include "cli/terminal/reload_bar.h"
#include "layercast/controller.h"
#include "layercast/publisher.h"
#include "layercast/store/store.h"
#include "src/control/engine_outcome.h"
#include "src/trace/trace_context.h"
#include "trainer_side/version_list.h"

namespace layercast::cli {
namespace {

// Handles SIGINT: the engines were asked, and go on with the reload although this program ends.
void SayThatEnginesGoOn(int) {
  EndInterrupted(
      "layercast reload: interrupted; the engines go on with it: layercast status --engine EP tells how it ends");
}

// Handles SIGINT with --all-or-none: nobody tells the engines to commit any more.
void SayThatEnginesLetGo(int) {
  EndInterrupted(
      "layercast reload: interrupted; the engines drop what they have staged, unless they commit it already: "
      "layercast status --engine EP tells");
}

class Reload final : public Subcommand {
 public:
  const char* name() const override { return "reload"; }
  const char* description() const override { return "Has engines take new weights while they run"; }

  void Declare(CLI::App& app) override {
    DeclareList(app, "--engine", engines_, "Endpoints of the engines")->check(EachOf(Endpoint()))->required();
    CLI::Option* path = checkpoint_.Declare(app, "The checkpoint's folder, which the engines can open", false);
    CLI::Option* const publisher =
        DeclareList(app, "--publisher", publishers_,
                    "Endpoint of a publisher, or of all that have a version between them: EP,EP")
            ->check(EachOf(Endpoint()))
            ->excludes(path);
    CLI::Option* const store =
        app.add_option("--store", request_.store, "A durable store's folder, which the engines can read; no publisher")
            ->excludes(path)
            ->excludes(publisher);
    app.add_option("--from-engine", request_.engine, "Endpoint of an engine of the same layout: what it serves")
        ->check(Endpoint())
        ->excludes(path)
        ->excludes(publisher)
        ->excludes(store);
    CLI::Option* const version = app.add_option("--version", version_,
                                                "LINEAGE@STEP that the publisher keeps, or the store; or 8 or more "
                                                "digits of its digest; by default the newest");
    app.add_flag("--latest", latest_, "The newest version of the publisher or the store, as by default")
        ->excludes(version);
    app.add_flag("--partial", request_.partial,
                 "Takes a part of the model: layers of which no tensor comes keep what they serve");
    DeclareList(app, "--may-keep", request_.may_keep,
                "Paths of layers, or of modules above them: no others may do so; by default any")
        ->needs("--partial");
    app.add_option("--noise", noise_,
                   "off: without the noise that the version carries; by default as the engine was told")
        ->check(OneOf({"off"}));
    app.add_flag("--allow-config-change", request_.allow_config_change,
                 "Take weights whose config.json differs from the engine's in what is computed, and warn");
    DeclareList(app, "--adapters", request_.adapters,
                "LoRA adapters of the version, or of the other engine, that are committed with the base; '*': all");
    app.add_flag("--keep-adapters", request_.keep_adapters,
                 "Keep adapters that say that they were trained on another base");
    app.add_option("--channel", request_.channel, "The data channel to use; by default the fastest")
        ->check(Channel())
        ->excludes(path)
        ->excludes(store);
    app.add_option("--pause-mode", request_.pause_mode, "What the commit does to sequences under way")
        ->check(OneOf({"wait", "abort", "keep"}));
    app.add_flag("--all-or-none", request_.all_or_none, "Commits on all engines, or on none of them");
    app.add_option("--trace", request_.trace,
                   "Writes a timeline of the reload into this file, which Perfetto and Chrome open");
    app.add_option("--traceparent", request_.traceparent,
                   "W3C's traceparent: what the reload is a part of; by default TRACEPARENT, or nothing");
    otlp_.Declare(app);
    canary_.Declare(app);
    timeout_.Declare(app);
    keys_.Declare(app);
  }

  void Run(Output& output) override {
    ExpectBetweenProcesses({request_.channel});
    if ((latest_ || !version_.empty()) && publishers_.empty() && request_.store.empty()) {
      throw UsageError("--version and --latest are for --publisher and --store");
    }
    if (!request_.store.empty()) request_.store = AbsolutePath(request_.store);
    if (!version_.empty()) request_.version = WantedVersion();
    request_.publisher = WithCommas(publishers_);
    if (!request_.adapters.empty() && request_.publisher.empty() && request_.engine.empty()) {
      throw UsageError("--adapters is for --publisher and --from-engine");
    }
    if (!checkpoint_.path().empty()) {
      const CheckpointSource source = checkpoint_.Source();
      request_.weights_path = source.path;
      request_.load_format = source.load_format;
      request_.secondary_weights = source.secondary;
    }
    request_.clean = noise_ == "off";
    request_.timeout = timeout_.duration();
    if (canary_.given() && !request_.trace.empty()) {
      throw UsageError("--trace is of one reload: expected no --canary beside it");
    }
    TakeTraceparent();
    const std::unique_ptr<OtlpSender> otlp = MakeOtlpSender(otlp_.target());
    if (otlp != nullptr) request_.on_trace = [&otlp](std::string spans) { otlp->Put(std::move(spans)); };
    if (canary_.given()) return canary_.Run(output, engines_, keys_.options(), request_);
    OnInterrupt(request_.all_or_none ? SayThatEnginesLetGo : SayThatEnginesGoOn);
    const std::vector<EngineOutcome> outcomes = ReloadWithBar();
    PrintOutcomes(output, outcomes);
  }

 private:
  // One in the environment that is none is nobody's mistake who has typed this.
  void TakeTraceparent() {
    if (!request_.traceparent.empty()) {
      if (!ParseTraceparent(request_.traceparent)) {
        throw UsageError("--traceparent: expected 00-TRACE-SPAN-01 in hexadecimal digits, got '" +
                         request_.traceparent + "'");
      }
      return;
    }
    const char* const given = std::getenv("TRACEPARENT");
    if (given != nullptr && ParseTraceparent(given)) request_.traceparent = given;
  }

  // One that is called by its digest is looked up. All of a sharded trainer's publishers have one by its name.
  Version WantedVersion() const {
    const std::string digits = version_.substr(version_.rfind(':') + 1);  // all of it, or behind a name
    if (!IsDigits(digits)) return ParseVersion(version_);
    if (digits != version_) static_cast<void>(ParseVersion(version_.substr(0, version_.size() - digits.size() - 1)));
    if (!request_.store.empty()) return Store(request_.store).Versions().Named(version_).version;
    if (publishers_.size() != 1) throw UsageError("--version: expected LINEAGE@STEP of several publishers");
    return RemotePublisher(publishers_.front(), keys_.options(), timeout_.duration())
        .Versions()
        .Named(version_)
        .version;
  }

  std::vector<EngineOutcome> ReloadWithBar() {
    const std::size_t engines = engines_.size();
    ReloadBoard board(engines == 1 ? engines_.front() : std::to_string(engines) + " engines", engines);
    ProgressBar bar([&board] { return board.State(); });
    // Nobody is asked for what nobody sees.
    if (bar.draws()) request_.on_progress = [&board](const EngineProgress& progress) { board.Note(progress); };
    return Controller(engines_, keys_.options()).ReloadWeights(request_);
  }

  std::vector<std::string> engines_;
  CheckpointFlags checkpoint_;
  std::vector<std::string> publishers_;
  std::string version_;
  std::string noise_;
  bool latest_ = false;  // which is what is done anyway
  ReloadRequest request_;
  CanaryFlags canary_;
  Timeout timeout_;
  OtlpFlag otlp_;
  KeyFlags keys_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeReload() { return std::make_unique<Reload>(); }

}  // namespace layercast::cli
