// layercast serve: runs an engine, with all its ranks and its service, until it is ended.
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments/arguments.h"
#include "cli/arguments/http_flags.h"
#include "cli/arguments/key_flags.h"
#include "cli/arguments/log_flag.h"
#include "cli/arguments/otlp_flag.h"
#include "cli/arguments/staleness_flags.h"
#include "cli/arguments/subcommand.h"
#include "cli/terminal/end_signal.h"
#include "cli/terminal/progress_bar.h"
#include "cli/terminal/reload_bar.h"
#include "engine_side/model/registry/named_draft.h"
#include "engine_side/reload/layout/layer_recipes.h"
#include "engine_side/reload/sources/kernel_files.h"
#include "engine_side/server/engine_service.h"
#include "layercast/commit_policy.h"
#include "layercast/noise/noise_stages.h"
#include "src/base/since_1970.h"
#include "src/base/threads/thread_name.h"
#include "src/net/wake_up.h"

namespace layercast::cli {
namespace {

// A name that no other engine has, because publishers tell engines apart by it.
std::string EngineName() {
  char host[256] = {};
  if (::gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  return std::string(host) + ":" + std::to_string(::getpid()) + ":" + std::to_string(MillisecondsSince1970());
}

class Serve final : public Subcommand {
 public:
  const char* name() const override { return "serve"; }
  const char* description() const override {
    return "Runs an engine with all its ranks, which takes new weights meanwhile";
  }

  void Declare(CLI::App& app) override {
    checkpoint_.Declare(app, "The checkpoint's folder, or one that `export` wrote");
    app.add_option(
        "--draft", draft_,
        "Also serves a draft model: `mtp`, the draft layers of the checkpoint, or the folder of an EAGLE one");
    CLI::Option* const publisher =
        DeclareList(app, "--publisher", publishers_, "With --load-format remote: whose version to start with")
            ->check(EachOf(Endpoint()));
    CLI::Option* const store =
        app.add_option("--store", store_, "With --load-format remote: the durable store whose version to start with")
            ->excludes(publisher);
    app.add_option("--from-engine", engine_,
                   "With --load-format remote: the engine of the same layout that lends what it serves")
        ->check(Endpoint())
        ->excludes(publisher)
        ->excludes(store);
    app.add_option("--version", version_, "LINEAGE@STEP of the publisher or the store; by default its newest");
    app.add_flag("--allow-config-change", allow_config_change_,
                 "Start with weights whose config.json differs from the model's in what is computed");
    app.add_option("--seed", seed_, "With --load-format dummy: of the weights; by default 0")->check(WholeNumber(0));
    app.add_option("--tp", options_.ranks.tp_size, "Ranks over which each layer is split")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    DeclareExperts(app, options_.ranks.expert_parallel, options_.ranks.expert_placement);
    app.add_option("--pp", options_.ranks.pp_size, "Pipeline stages, of --tp ranks each")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    DeclareStageLayers(app, options_.ranks.pp_layers);
    app.add_option(
           "--quantization", options_.ranks.recipe,
           "The recipe of what is served; checkpoint: of each layer that of the form in which config.json says it is")
        ->check(OneOf(LayerRecipes::KnownNames()))
        ->capture_default_str();
    app.add_flag("--power-of-two-scales", options_.ranks.power_of_two_scales,
                 "Rounds the scales of fp8_per_block up to powers of two");
    app.add_flag(
        "--requantize", options_.ranks.requantize,
        "Dequantizes layers of a quantized checkpoint that cannot be served as they are, and quantizes them anew");
    DeclareScales(app, options_.ranks.scales);
    DeclareWeightRules(app, weight_rules_);
    app.add_option("--commit", commit_, "How a version is put in place")
        ->check(OneOf(KnownCommitPolicies()))
        ->capture_default_str();
    app.add_option("--noise", noise_,
                   "What becomes of noise that versions carry: shared, the same on every engine that serves them; "
                   "per-engine; off, for the clean versions")
        ->check(OneOf({"shared", "per-engine", "off"}))
        ->capture_default_str();
    app.add_flag("--keep-previous", options_.ranks.keep_previous,
                 "Keeps the version that was served before in host memory, for layercast rollback");
    DeclareList(app, "--follow", follow_,
                "Endpoint of the publisher that --max-staleness is of, until a version comes from another")
        ->check(EachOf(Endpoint()));
    staleness_.Declare(app, "Steps behind the newest of its publisher, beyond which it refuses to generate", "it");
    app.add_option("--device", device_, "Where it computes")->check(OneOf({"cpu", "cuda"}))->capture_default_str();
    app.add_option("--adapter-slots", options_.ranks.adapter_slots,
                   "LoRA adapters that there is memory for, one more than names are served at once; 0: none")
        ->check(CLI::Range(0, 4096))
        ->capture_default_str();
    app.add_option(
           "--host-adapters", options_.ranks.host_adapters,
           "LoRA adapters that are kept in host memory beside those in slots, and come back when they are asked "
           "for; 0: none")
        ->check(CLI::Range(0, 4095))
        ->capture_default_str();
    app.add_option("--max-adapter-rank", options_.ranks.max_adapter_rank, "The largest rank of an adapter's module")
        ->check(CLI::Range(1, 512))
        ->capture_default_str();
    DeclareList(app, "--adapter-modules", options_.ranks.adapter_modules,
                "Layers that adapters may change: qkv_proj,o_proj; by default all that adapters can");
    app.add_option("--adapter-dtype", adapter_dtype_, "Of the slots; by default the model's")
        ->check(OneOf({"bf16", "f16", "f32"}));
    app.add_option("--adapter", adapters_, "NAME=DIR: an adapter to start with, a folder of PEFT; may be repeated");
    app.add_option("--adapter-switch", options_.adapter_switch,
                   "What a new version of their adapter does to sequences under way")
        ->check(OneOf({"finish", "keep", "abort"}))
        ->capture_default_str();
    app.add_option("--max-num-seqs", max_num_seqs_,
                   "Sequences that are generated at once, the others wait; by default 256, on cuda 16")
        ->check(CLI::Range(1, 4096));
    app.add_option("--max-model-len", options_.ranks.max_model_len,
                   "Tokens of a sequence, prompt and all; by default as many as the model allows, on cuda at most 4096")
        ->check(WholeNumber(1));
    app.add_option("--connection-budget", options_.connection_budget,
                   "The most bytes of all connections' messages that wait to be handled or are unfinished; beyond that "
                   "the connections of whoever has most of them are cut")
        ->check(WholeNumber(1))
        ->capture_default_str();
    app.add_option("--bind", options_.endpoint, "Where it is called; port 0 picks one")
        ->check(Endpoint())
        ->capture_default_str();
    DeclareList(app, "--allow-path", options_.allow_paths,
                "Folders in which reload, verify, export and adapters may name paths; over tcp:// by default none");
    keys_.Declare(app);
    keys_.DeclareTrust(app);
    DeclareLogFormat(app);
    DeclareMetrics(app, options_.metrics.bind, options_.metrics.open);
    DeclareHttp(app, options_.door);
    otlp_.Declare(app);
    app.add_option("--chunk-bytes", options_.ranks.chunk_bytes, "The most that a rank asks a publisher for at once")
        ->check(CLI::Range(4096, 1 << 30))
        ->capture_default_str();
    app.add_option("--buffer-limit", options_.ranks.buffer_limit,
                   "The most bytes of incomplete layers that a rank holds; 0: no bound")
        ->check(WholeNumber(0))
        ->capture_default_str();
    app.add_option("--channel", options_.ranks.channel,
                   "The data channel from publishers, where a reload names none; by default the fastest")
        ->check(Channel());
    app.add_option("--relay", options_.ranks.relay,
                   "Serves snapshots on to other engines while it takes them: where each rank does, as others reach "
                   "it; port 0 picks one")
        ->check(Endpoint());
    app.add_flag(
        "--keep-source", options_.ranks.keep_source,
        "Keeps the source bytes of the version that is served in host memory, so that the next one may come as "
        "what changed since");
    app.add_option("--delta", delta_, "With --keep-source: whether it does; auto: where that takes less time")
        ->check(OneOf(KnownDeltaUses()))
        ->capture_default_str();
    app.add_option("--pause-mode", options_.pause_mode, "What the commit does to sequences under way")
        ->check(OneOf({"wait", "abort", "keep"}))
        ->capture_default_str();
  }

  void Run(Output& output) override {
    if (device_ == "cuda") CheckDevice();
    CheckScales();
    ExpectBetweenProcesses({options_.ranks.channel});
    options_.ranks.model = checkpoint_.path();
    options_.ranks.commit = CommitPolicyNamed(commit_);
    options_.ranks.noise = NoiseUseNamed(noise_);
    if (options_.ranks.keep_previous && options_.ranks.commit != CommitPolicy::kStaged) {
      throw UsageError("--keep-previous: expected --commit staged, got " + commit_ +
                       ", which writes while it receives");
    }
    options_.ranks.delta = DeltaUseNamed(delta_);
    if (options_.ranks.keep_source && !options_.ranks.relay.empty()) {
      throw UsageError("--keep-source: expected no --relay beside it, got " + options_.ranks.relay);
    }
    options_.ranks.on_device = device_ == "cuda";
    options_.ranks.program = RankProgram(options_.ranks.on_device);
    options_.ranks.max_num_seqs = max_num_seqs_.value_or(options_.ranks.on_device ? 16 : 256);
    options_.ranks.engine = EngineName();
    options_.ranks.keys = keys_.options();
    options_.metrics.open |= options_.ranks.keys.insecure;
    options_.otlp = otlp_.target();
    options_.ranks.draft = AbsoluteDraft(draft_);
    if (!options_.door.key_file.empty()) options_.door.key_file = AbsolutePath(options_.door.key_file);
    if (!weight_rules_.empty()) options_.ranks.weight_rules = AbsolutePath(weight_rules_);
    if (!adapter_dtype_.empty()) options_.adapter_dtype = AdapterDType(adapter_dtype_);
    if (options_.ranks.host_adapters > 0 && options_.ranks.adapter_slots == 0) {
      throw UsageError("--host-adapters: expected --adapter-slots, through which they come, got none");
    }
    options_.first_adapters = FirstAdapters();
    options_.first_load = FirstLoad();
    options_.first_load["allow_config_change"] = allow_config_change_;
    options_.follow = WithCommas(follow_);
    options_.max_staleness = MaxStaleness();
    EndSignal end;
    EngineService service(options_);
    ProgressBar bar([&service] { return LoadingBarState(service.Status()); });
    if (!LoadUnlessEnded(service, end)) return;
    bar.End();
    const Json ready = service.Ready();
    output.Print(ready, "serving " + VersionText(ready.at("version")) + " at " + service.endpoint() + " with " +
                            std::to_string(ready.at("pids").size()) + " ranks, quantization " + options_.ranks.recipe +
                            AdapterText(ready) + MetricsText(ready.at("metrics")) + HttpText(ready.at("http")));
    end.Wait();
  }

 private:
  // ", 2 adapter slots of 1024 bytes and 3 host adapters of 2048 bytes on a rank"
  static std::string AdapterText(const Json& ready) {
    if (ready.at("adapter_slots") == 0) return "";
    std::string text =
        ", " + ready["adapter_slots"].dump() + " adapter slots of " + ready["adapter_bytes"].dump() + " bytes";
    if (ready.at("host_adapters") != 0) {
      text += " and " + ready["host_adapters"].dump() + " host adapters of " + ready["host_adapter_bytes"].dump() +
              " bytes";
    }
    return text + " on a rank";
  }

  // Loads the first weights. That may take long, so a signal ends the program meanwhile. Returns false if it did.
  static bool LoadUnlessEnded(EngineService& service, EndSignal& end) {
    WakeUp loaded;
    std::future<void> loading = std::async(std::launch::async, [&] {
      NameThisThread("lc-load");
      const WakeUp::RingAtExit ring(loaded);
      service.LoadModel();
    });
    const bool ended = end.WaitOr(loaded);
    if (ended) service.End();
    try {
      loading.get();
    } catch (const Error&) {
      if (!ended) throw;
    }
    return !ended;
  }

  static DType AdapterDType(const std::string& name) {
    if (name == "f32") return DType::kF32;
    return name == "f16" ? DType::kF16 : DType::kBF16;
  }

  // The arguments of `load_adapter` for the adapters to start with.
  std::vector<Json> FirstAdapters() const {
    std::vector<Json> first;
    for (const auto& [name, path] : ParseAdapters(adapters_)) first.push_back({{"name", name}, {"weights_path", path}});
    const std::size_t most = options_.ranks.adapter_slots + options_.ranks.host_adapters;
    if (first.size() > most) {
      throw UsageError("--adapter: expected at most --adapter-slots and --host-adapters, " + std::to_string(most) +
                       ", got " + std::to_string(first.size()));
    }
    return first;
  }

  std::optional<StalenessBound> MaxStaleness() const {
    if (!staleness_.steps()) return std::nullopt;
    StalenessBound bound{.steps = *staleness_.steps()};
    bound.heard_within = staleness_.heard_within().value_or(bound.heard_within);
    return bound;
  }

  void CheckScales() const {
    const std::string& recipe = options_.ranks.recipe;
    const bool has_them = recipe == "fp8_per_block" || recipe == LayerRecipes::kAsCheckpoint;
    if (options_.ranks.power_of_two_scales && !has_them) {
      throw UsageError("--power-of-two-scales is for --quantization fp8_per_block, got " + recipe);
    }
  }

  // The arguments of `reload_weights` for the first load.
  Json FirstLoad() const {
    const bool remote = checkpoint_.load_format() == "remote";
    if (remote == (publishers_.empty() && engine_.empty() && store_.empty())) {
      throw UsageError(remote ? "--load-format remote: expected --publisher, --store or --from-engine, got none"
                              : "--publisher, --store and --from-engine are for --load-format remote");
    }
    if (!version_.empty() && publishers_.empty() && store_.empty()) {
      throw UsageError("--version is for --publisher and --store");
    }
    if (seed_ && checkpoint_.load_format() != "dummy") throw UsageError("--seed is for --load-format dummy");
    if (checkpoint_.load_format() == "dummy") return {{"load_format", "dummy"}, {"seed", seed_.value_or(0)}};
    if (!remote) return CheckpointJson(WithDraft(checkpoint_.Source()));
    if (!engine_.empty()) {
      Json load = {{"engine", engine_}};
      if (options_.ranks.adapter_slots > 0) load["adapters"] = "*";
      return load;
    }
    Json load = Json::object();
    if (store_.empty()) {
      load["publisher"] = WithCommas(publishers_);
    } else {
      load["store"] = AbsolutePath(store_);
    }
    if (!version_.empty()) {
      const Version version = ParseVersion(version_);
      load["lineage"] = version.lineage;
      load["step"] = version.step;
    }
    return load;
  }

  // Adds the draft model's checkpoint, unless the source is an export, which holds the draft model's tensors already.
  CheckpointSource WithDraft(CheckpointSource source) const {
    return IsKernelFormat(source) ? source : WithNamedDraft(std::move(source), options_.ranks.draft);
  }

  // Refuses what an engine in a CUDA graph on one GPU does not do.
  void CheckDevice() const {
    const auto refuse = [](const std::string& what) { throw Error(ErrorCode::kUnsupported, "--device cuda: " + what); };
    if (options_.ranks.tp_size != 1) {
      refuse("one rank computes the whole model: expected --tp 1, got " + std::to_string(options_.ranks.tp_size));
    }
    if (options_.ranks.pp_size != 1) {
      refuse("one rank computes the whole model: expected --pp 1, got " + std::to_string(options_.ranks.pp_size));
    }
  }

  // The path of a rank's program, which lies beside this one.
  static std::string RankProgram(bool on_device) {
    const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe");
    const std::filesystem::path rank = self.parent_path() / (on_device ? "layercast-rank-cuda" : "layercast-rank");
    if (std::filesystem::exists(rank)) return rank.string();
    const char* why = on_device ? "this build was made without libtorch, or without its CUDA half"
                                : "it was not put beside this program";
    throw Error(ErrorCode::kUnsupported, "no program for ranks at " + rank.string() + ": " + why);
  }

  EngineServiceOptions options_;
  OtlpFlag otlp_;
  KeyFlags keys_;
  CheckpointFlags checkpoint_;
  std::string draft_;
  std::string weight_rules_;
  std::vector<std::string> publishers_;
  std::string store_;
  std::string engine_;
  std::string version_;
  bool allow_config_change_ = false;
  std::optional<std::uint64_t> seed_;
  std::vector<std::string> adapters_;
  std::string adapter_dtype_;
  std::string commit_ = "staged";
  std::string delta_ = "auto";
  std::string noise_ = "shared";
  std::vector<std::string> follow_;
  StalenessFlags staleness_;
  std::string device_ = "cpu";
  std::optional<std::int64_t> max_num_seqs_;
};

}  // namespace

std::unique_ptr<Subcommand> MakeServe() { return std::make_unique<Serve>(); }

}  // namespace layercast::cli
