// layercast publish: offers a checkpoint as a version until it is ended.
#include <unistd.h>

#include <charconv>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/log_flag.h"
#include "cli/arguments/nearest.h"
#include "cli/arguments/noise_flags.h"
#include "cli/arguments/otlp_flag.h"
#include "cli/arguments/subcommand.h"
#include "cli/terminal/end_signal.h"
#include "cli/terminal/reading_bar.h"
#include "layercast/adapters/adapter_weights.h"
#include "layercast/publisher.h"
#include "src/base/utf8.h"
#include "src/checkpoint/formats/checkpoint.h"
#include "trainer_side/order.h"
#include "trainer_side/row_shard.h"
#include "trainer_side/watch/watched_run.h"

namespace layercast::cli {
namespace {

constexpr std::chrono::milliseconds kWatchLook{500};

// The checkpoint's tensors in the order that was asked for. `layer` is not handled here: it is the order of the
// engines' schedules, and the publisher walks in it.
Weights InOrder(const CheckpointSource& checkpoint, const std::string& order) {
  const auto weights = [&] { return Weights::FromCheckpoint(checkpoint); };
  if (order == "layer" || order == "checkpoint") return weights();
  constexpr std::string_view kShuffled = "shuffled:";
  const std::vector<std::string> known = {"layer", "checkpoint", "shuffled"};
  if (order.starts_with(kShuffled)) {
    std::uint64_t seed = 0;
    const char* const end = order.data() + order.size();
    const auto [stop, error] = std::from_chars(order.data() + kShuffled.size(), end, seed);
    if (error == std::errc() && stop == end) return Shuffled(weights(), seed);
  }
  throw UsageError("--order: expected layer, checkpoint or shuffled:SEED, got '" + order + "'" +
                   DidYouMean(order.substr(0, order.find(':')), known));
}

// Parses "1/4": a rank, and how many ranks there are.
VersionPart ParsePart(const std::string& text) {
  const char* const end = text.data() + text.size();
  VersionPart part;
  const auto [slash, first] = std::from_chars(text.data(), end, part.rank);
  if (first == std::errc() && slash != end && *slash == '/') {
    const auto [stop, second] = std::from_chars(slash + 1, end, part.ranks);
    if (second == std::errc() && stop == end && 0 <= part.rank && part.rank < part.ranks) return part;
  }
  throw UsageError("--part: expected RANK/RANKS, like 0/4, got '" + text + "'");
}

// The same weights, but their walks show their progress on the bar. The bar outlives them.
Weights WithProgress(Weights weights, ReadingBar& bar) {
  weights.walk = [walk = std::move(weights.walk), &bar](std::span<const std::string> order) {
    // A tensor counts when the next one is asked for, because then it has been taken.
    return MakeWeightsIterator([tensors = std::shared_ptr(walk(order)), &bar, bytes = std::uint64_t{0}]() mutable {
      if (bytes != 0) bar.Read(bytes);
      std::optional<NamedTensor> tensor = tensors->Next();
      if (tensor) bytes += static_cast<std::uint64_t>(tensor->tensor.num_bytes());
      return tensor;
    });
  };
  return weights;
}

class Publish final : public Subcommand {
 public:
  const char* name() const override { return "publish"; }
  const char* description() const override {
    return "Publishes a checkpoint, or those that a trainer saves, as versions until it is ended";
  }

  void Declare(CLI::App& app) override {
    checkpoint_.Declare(app, "The checkpoint's folder, or one file of it", false);
    app.add_option("--adapter", adapters_,
                   "NAME=DIR: a LoRA adapter, a folder of PEFT, alone or beside the checkpoint; may be repeated");
    app.add_option("--adapter-base", adapter_base_,
                   "LINEAGE@STEP:DIGEST: the version of the base that the adapters were trained on; engines that serve "
                   "another refuse them");
    app.add_option("--mode", mode_, "snapshot: engines pull at their own pace; stream: it is walked for each of them")
        ->check(OneOf({"snapshot", "stream"}))
        ->capture_default_str();
    app.add_option("--order", order_, "Of a stream: layer, checkpoint or shuffled:SEED")->capture_default_str();
    window_ =
        app.add_option("--stream-window", options_.stream_window_bytes,
                       "Of a stream: the most bytes that wait for engines before its walks do; one tensor always may")
            ->check(WholeNumber(0))
            ->capture_default_str();
    app.add_option("--part", part_,
                   "RANK/RANKS: the rows of each tensor that this rank of a trainer sharded by FSDP2 would hold");
    app.add_option("--lineage", lineage_, "The training run; by default the folder's name")
        ->check(TakenBy([](const std::string& name) { CheckName("lineage", name); }, "NAME"));
    given_step_ = app.add_option("--step", step_, "The version's step in its lineage")
                      ->check(WholeNumber(0))
                      ->capture_default_str();
    noise_.Declare(app);
    app.add_option("--run", run_,
                   "The run of the trainer that has a --part; by default that of torchrun or Slurm, if it has a name")
        ->check(TakenBy([](const std::string& name) { CheckName("run", name); }, "NAME"));
    app.add_option("--connection-budget", options_.connection_budget,
                   "The most bytes of all connections' messages that wait to be handled or are unfinished; beyond that "
                   "the connections of whoever has most of them are cut")
        ->check(WholeNumber(1))
        ->capture_default_str();
    app.add_option("--bind", options_.endpoint, "Where engines find it; port 0 picks one")
        ->check(Endpoint())
        ->capture_default_str();
    DeclareList(app, "--channel", options_.channels,
                "The data channels that engines may choose from; by default all but cuda_ipc")
        ->check(EachOf(Channel()));
    app.add_option("--nccl-fleet", options_.nccl_fleet, "Ranks that take the same over nccl and are served together")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    app.add_option("--watch", watch_,
                   "A trainer's folder: publishes each checkpoint-N or step_N in it once it is whole");
    app.add_option("--quiet", quiet_, "Of --watch: seconds for which a folder's files do not change once it is whole")
        ->check(Number(0, 3600))
        ->needs("--watch")
        ->capture_default_str();
    CLI::Option* const to =
        app.add_option("--to", to_,
                       "Endpoint of a running publisher, which is to publish the folder, in place of this one")
            ->check(Endpoint())
            ->excludes("--watch");
    timeout_.Declare(app);
    app.add_option("--keep", options_.retained_versions, "How many versions are kept; older ones are evicted")
        ->check(WholeNumber(1))
        ->excludes(to)
        ->capture_default_str();
    app.add_option("--keep-bytes", options_.retained_bytes,
                   "Older versions are evicted while those that are kept take more memory; 0: no bound")
        ->check(WholeNumber(0))
        ->excludes(to)
        ->capture_default_str();
    CLI::Option* const store =
        app.add_option("--store", options_.store.path,
                       "Also writes each version into this folder, where engines find it when no publisher lives")
            ->excludes(to);
    app.add_option("--store-keep", options_.store.retained_versions,
                   "How many versions of a lineage the store keeps; older ones are evicted")
        ->check(WholeNumber(1))
        ->needs(store)
        ->capture_default_str();
    app.add_option("--store-bytes", options_.store.retained_bytes,
                   "Older versions are evicted from the store while its files are larger; 0: no bound")
        ->check(WholeNumber(0))
        ->needs(store)
        ->capture_default_str();
    DeclareList(app, "--allow-path", options_.allow_paths,
                "Folders of which publish --to may have this publish what is there")
        ->excludes(to);
    keys_.Declare(app);
    keys_.DeclareSign(app);
    DeclareLogFormat(app);
    DeclareMetrics(app, options_.metrics_bind, options_.metrics_open);
    otlp_.Declare(app);
  }

  void Run(Output& output) override {
    if (order_ != "layer" && mode_ != "stream") {
      throw UsageError("--order " + order_ + " is for streams: say --mode stream");
    }
    if (window_->count() > 0 && mode_ != "stream") {
      throw UsageError("--stream-window is for streams: say --mode stream");
    }
    ExpectBetweenProcesses(options_.channels);
    options_.keys = keys_.options();
    if (!to_.empty()) return Order(output);
    if (!watch_.empty()) return Watch(output);

    const VersionPart part = ParsePart(part_);
    const std::string lineage = lineage_.empty() ? DefaultLineage(PathOfWeights()) : lineage_;
    const std::optional<Noise> noise = noise_.At(lineage, step_);
    EndSignal end;
    BeginToSendTraces();
    Weights weights = Offered(part);
    const std::uint64_t bytes = TotalBytes(weights.specs);
    const std::size_t tensors = weights.specs.size();
    ReadingBar bar(bytes);
    if (mode_ != "snapshot") bar.End();  // streams are walked later, once for each engine
    Publisher publisher(options_);
    const PublishedVersion published =
        publisher.Publish({.lineage = lineage,
                           .step = step_,
                           .mode = mode_ == "stream" ? PublishMode::kStream : PublishMode::kSnapshot,
                           .layer_order = order_ == "layer",
                           .part = part,
                           .run = run_.empty() ? std::nullopt : std::optional(run_),
                           .noise = noise},
                          WithProgress(std::move(weights), bar));
    bar.End();
    output.Print({{"ready", true},
                  {"endpoint", publisher.endpoint()},
                  {"metrics", MetricsJson(publisher)},
                  {"pids", {::getpid()}},
                  {"mode", mode_},
                  {"version", VersionToJson(published.version())},
                  {"part", {{"rank", part.rank}, {"ranks", part.ranks}}},
                  {"run", published.run().empty() ? Json() : Json(published.run())},
                  {"noise", NoiseToJson(noise)},
                  {"tensors", tensors},
                  {"bytes", bytes}},
                 "publishing " + published.version().ToString() + " at " + publisher.endpoint() + ": " +
                     std::to_string(tensors) + " tensors, " + std::to_string(bytes) + " bytes, as a " + mode_ +
                     (part.ranks == 1 ? "" : ", part " + part_) +
                     (published.run().empty() ? "" : ", run " + Quote(published.run())) + NoiseText(noise) +
                     MetricsText(MetricsJson(publisher)));
    end.Wait();
  }

 private:
  static Json MetricsJson(const Publisher& publisher) {
    const std::string address = publisher.metrics_address();
    return address.empty() ? Json() : Json(address);
  }

  // ", noise 0.01"
  static std::string NoiseText(const std::optional<Noise>& noise) {
    return noise ? ", noise " + Json(noise->sigma).dump() : "";
  }
  // After EndSignal, as every thread is started.
  void BeginToSendTraces() {
    traces_ = MakeOtlpSender(otlp_.target());
    if (traces_ != nullptr) options_.on_trace = [this](std::string spans) { traces_->Put(std::move(spans)); };
  }

  // Has a running publisher publish the folder.
  void Order(Output& output) const {
    if (checkpoint_.path().empty() || !adapters_.empty() || mode_ != "snapshot" || part_ != "0/1") {
      throw UsageError("--to: expected --model, a whole checkpoint that becomes a snapshot");
    }
    if (given_step_->count() == 0) throw UsageError("--to: expected --step, got none");
    if (noise_.given()) throw UsageError("--noise is for a publisher of this program's own, not for --to");
    const CheckpointSource source = checkpoint_.Source();
    if (!source.secondary.empty()) throw UsageError("--to: expected one folder, got --secondary-weights");
    const Version version =
        RemotePublisher(to_, keys_.options(), timeout_.duration())
            .PublishFolder(
                source, {.lineage = lineage_, .step = step_, .run = run_.empty() ? std::nullopt : std::optional(run_)});
    output.Print({{"endpoint", to_}, {"version", VersionToJson(version)}},
                 "published " + version.ToString() + " at " + to_);
  }

  // Publishes what a trainer saves, until it is ended.
  void Watch(Output& output) {
    if (!checkpoint_.path().empty() || !adapters_.empty() || mode_ != "snapshot" || part_ != "0/1") {
      throw UsageError("--watch: expected a folder whose checkpoints become snapshots, and no --model beside it");
    }
    EndSignal end;
    BeginToSendTraces();
    const std::string parent = AbsolutePath(watch_);
    const std::string lineage = lineage_.empty() ? DefaultLineage(parent) : lineage_;
    static_cast<void>(noise_.At(lineage, 0));  // refused before a checkpoint appears
    Publisher publisher(options_);
    WatchedRun run(
        publisher,
        {.parent = parent,
         .lineage = lineage,
         .run = run_,
         .retained_versions = options_.retained_versions,
         .quiet = std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(quiet_)),
         .noise = [this, lineage](std::uint64_t step) { return noise_.At(lineage, step); }});
    run.Look();
    output.Print(
        {{"ready", true},
         {"endpoint", publisher.endpoint()},
         {"metrics", MetricsJson(publisher)},
         {"pids", {::getpid()}},
         {"version", nullptr},
         {"watch", parent}},
        "watching " + Quote(parent) + ", publishing at " + publisher.endpoint() + MetricsText(MetricsJson(publisher)));
    while (!end.WaitUpTo(kWatchLook)) run.Look();
  }

  // The checkpoint, the adapters, or both.
  Weights Offered(const VersionPart& part) const {
    std::optional<Weights> base;
    if (!checkpoint_.path().empty()) base = RowShard(InOrder(checkpoint_.Source(), order_), part);
    if (adapters_.empty() && !base) throw UsageError("expected --model or --adapter (or --watch), got neither");
    if (!adapter_base_.empty() && (adapters_.empty() || base)) {
      throw UsageError("--adapter-base is of adapters alone: " +
                       std::string(base && !adapters_.empty() ? "with --model their base is this version's own"
                                                              : "expected --adapter, got none"));
    }
    if (adapters_.empty()) return *std::move(base);
    if (part.ranks != 1) throw UsageError("--adapter: expected whole tensors, got --part " + part_);
    std::vector<AdapterWeights> adapters;
    for (const auto& [name, path] : ParseAdapters(adapters_)) {
      adapters.push_back(AdapterWeights::FromFolder(name, path));
      if (!adapter_base_.empty()) adapters.back().base = ParseWholeVersion(adapter_base_, "--adapter-base");
    }
    return Together(std::move(adapters), std::move(base));
  }

  std::string PathOfWeights() const {
    return checkpoint_.path().empty() ? ParseAdapters(adapters_).begin()->second : checkpoint_.path();
  }

  CheckpointFlags checkpoint_;
  std::vector<std::string> adapters_;
  std::string adapter_base_;
  std::string mode_ = "snapshot";
  std::string order_ = "layer";
  CLI::Option* window_ = nullptr;
  std::string part_ = "0/1";
  std::string lineage_;
  std::string run_;
  std::uint64_t step_ = 0;
  CLI::Option* given_step_ = nullptr;
  std::string watch_;
  double quiet_ = 2;
  std::string to_;
  Timeout timeout_;
  PublisherOptions options_;
  OtlpFlag otlp_;
  std::unique_ptr<OtlpSender> traces_;  // outlives the publisher; null: nobody collects them
  KeyFlags keys_;
  NoiseFlags noise_;
};

}  // namespace

std::unique_ptr<Subcommand> MakePublish() { return std::make_unique<Publish>(); }

}  // namespace layercast::cli
