#include "engine_side/server/rank/process/rank_process.h"

#include <unistd.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "engine_side/engine/built_in/engine.h"
#include "engine_side/reload/commit/committer.h"
#include "engine_side/reload/receive/attempt_stop.h"
#include "engine_side/server/group/json_stream.h"
#include "engine_side/server/group/memory_file.h"
#include "engine_side/server/group/model_files.h"
#include "engine_side/server/group/relay_counts.h"
#include "engine_side/server/group/reload_request.h"
#include "engine_side/server/rank/previous_version.h"
#include "engine_side/server/rank/process/call_queue.h"
#include "engine_side/server/rank/process/forward_step.h"
#include "engine_side/server/rank/process/freed_memory.h"
#include "engine_side/server/rank/process/progress_pace.h"
#include "engine_side/server/rank/process/rank_peers.h"
#include "engine_side/server/rank/rank_adapters.h"
#include "engine_side/server/rank/rank_export.h"
#include "engine_side/server/rank/rank_memory.h"
#include "engine_side/server/rank/version_file.h"
#include "engine_side/server/rank/weights_lender.h"
#include "layercast/error.h"
#include "layercast/receiver.h"
#include "src/base/log.h"
#include "src/base/threads/thread_name.h"
#include "src/checkpoint/config_text.h"
#include "src/control/progress_forms.h"
#include "src/trace/process_trace.h"
#include "src/trace/trace_recorder.h"

namespace layercast {
namespace {

// So much may be read back within the commit, which then ends a tenth of a millisecond later, and spares a round.
constexpr std::uint64_t kVerifiedAtOnce = std::uint64_t{4} << 20;

class RankProcess {
 public:
  RankProcess(const RankOptions& options, const std::optional<RankOnDevice>& on_device, JsonStream& stream)
      : options_(options),
        stream_(stream),
        memory_(on_device ? on_device->open_memory() : std::make_unique<MemoryFile>(UniqueFd(options.weights_fd)),
                on_device ? on_device->open_memory() : nullptr,
                {UniqueFd(options.staging_fd), UniqueFd(options.adapters_fd)},
                FailPoints::FromEnvironment("rank" + std::to_string(ParallelOf(options).engine_rank()))),
        files_(ModelFiles::FromDescriptor(
            options.model_files_fd,
            {.model = options.model, .draft = options.draft, .weight_rules = options.weight_rules})),
        parallel_(ParallelOf(options)),
        serves_(!on_device) {
    std::unique_ptr<Module> model = BuildModel();
    const LayerRecipes recipes(options.recipe, {.power_of_two_scales = options.power_of_two_scales});
    ReceiverOptions receiver = ReceiverOptionsHere(!on_device);
    if (options.adapter_slots > 0) {
      adapters_.emplace(
          options_, parallel_, [this] { return BuildModel(); },
          RankAdapters::Memory{memory_.weights(), memory_.host_adapters()}, receiver);
    }
    if (on_device) {
      engine_ = std::make_unique<Engine>(*model, parallel_, recipes, memory_.weights(),
                                         on_device->make(*memory_.caches()), slots());
    } else {
      peers_.emplace(options_);
      engine_ = std::make_unique<Engine>(*model, parallel_, recipes, memory_.weights(), peers_->peers(), slots());
    }
    receiver.trace = &trace_;  // of the weights alone: adapters may be filled meanwhile
    receiver_ =
        std::make_unique<Receiver>(std::move(model), parallel_, QuantizationOf(options), engine_->Capture(), receiver);
    if (adapters_) adapters_->SetServed(receiver_->captured());
    if (options.keep_previous) previous_.emplace(receiver_->captured());
    lender_ = std::make_unique<WeightsLender>(receiver_->clean(), ConfigTextToSend(files_.description().config_json()));
  }

  void Run() {
    std::thread staging([this] {
      NameThisThread("lc-stage");
      staging_calls_.RunUntilClosed();
    });
    std::thread moving([this] {
      NameThisThread("lc-move");
      moving_calls_.RunUntilClosed();
    });
    std::thread reader([this] { Read(); });
    forward_calls_.RunUntilClosed();
    staging_calls_.Close();
    moving_calls_.Close();
    stream_.Shutdown();
    staging.join();
    moving.join();
    reader.join();
  }

 private:
  ReceiverOptions ReceiverOptionsHere(bool on_host) {
    ReceiverOptions receiver = ReceiverOptionsOf(options_);
    if (on_host) receiver.staging_memory = &memory_.staging();
    if (on_host && options_.noise != NoiseUse::kOff) receiver.norm_memory = &memory_.weights();
    receiver.relay_takers = &relay_takers_;
    receiver.on_progress = [this](const ReloadProgress& made) {
      if (!pace_.IsDue(made)) return;
      Json progress = ProgressToJson(made);
      progress["attempt"] = receiver_->attempt();
      stream_.Send({{"progress", std::move(progress)}});
    };
    return receiver;
  }

  const AdapterSlots* slots() const { return adapters_ ? &adapters_->slots() : nullptr; }

  // Hands calls to the other threads, and does little else: it answers pings whatever the rank is doing.
  void Read() {
    NameThisThread("lc-calls");
    using Calls = std::map<std::string, Json (RankProcess::*)(const Json&)>;
    const Calls at_once = {// about what other threads are doing right now
                           {"cancel", &RankProcess::Cancel},
                           {"relay_counts", &RankProcess::RelayCounts}};
    const Calls forward = {{"step", &RankProcess::Step},
                           {"drop", &RankProcess::Drop},
                           {"prepare", &RankProcess::Alone<&RankProcess::Prepare>},
                           {"commit", &RankProcess::Alone<&RankProcess::Commit>},
                           {"roll_back", &RankProcess::Alone<&RankProcess::RollBack>},
                           {"sleep", &RankProcess::Alone<&RankProcess::Sleep>},
                           {"wake_up", &RankProcess::Alone<&RankProcess::WakeUp>}};
    const Calls staging = {{"stage", &RankProcess::Alone<&RankProcess::Stage>},
                           {"abort", &RankProcess::Alone<&RankProcess::Abort>},
                           {"adopt_staged", &RankProcess::Alone<&RankProcess::AdoptStaged>},
                           {"verify", &RankProcess::Alone<&RankProcess::Verify>},
                           {"trace", &RankProcess::Alone<&RankProcess::Trace>},
                           {"digests", &RankProcess::Digests},
                           {"export", &RankProcess::Export},
                           {"compare", &RankProcess::Compare},
                           {"fill_adapter", &RankProcess::FillAdapter},
                           {"compare_adapter", &RankProcess::CompareAdapter},
                           {"lend", &RankProcess::Lend}};
    while (std::optional<Json> message = stream_.Receive()) {
      if (message->contains("ping")) {
        stream_.Send({{"pong", 1}});
        continue;
      }
      const auto method = message->value("method", std::string());
      if (method == "end") break;
      if (const auto quick = at_once.find(method); quick != at_once.end()) {
        Answer(quick->second, *message);
      } else if (method == "move_adapter") {  // for sequences that wait, whatever is being staged
        moving_calls_.Put([this, request = *message] { Answer(&RankProcess::MoveAdapter, request); });
      } else if (const auto found = forward.find(method); found != forward.end()) {
        const bool receives = method == "commit" && WritesLayers(options_.commit);
        forward_calls_.Put([this, receives, call = found->second, request = *message] {
          Answer(call, request);
          if (receives) GiveFreedMemoryBack();
        });
      } else if (const auto stage = staging.find(method); stage != staging.end()) {
        staging_calls_.Put([this, call = stage->second, request = *message] {
          Answer(call, request);
          GiveFreedMemoryBack();
        });
      } else {
        stream_.Send({{"id", message->value("id", 0)},
                      {"error", ErrorToJson(Error(ErrorCode::kInternal, "no method '" + method + "'"))}});
      }
    }
    forward_calls_.Close();
  }

  void Answer(Json (RankProcess::*call)(const Json&), const Json& request) {
    Json answer = {{"id", request["id"]}};
    try {
      answer["result"] = (this->*call)(request["params"]);
    } catch (const std::exception& error) {
      answer["error"] = ErrorToJson(ErrorOfCall(error));
    }
    stream_.Send(answer);
  }

  // Makes a call that works on the receiver once no other such call does. These calls run on two threads, and a parent
  // that has waited for one until its deadline sends the next, while the rank may still be at work on the first.
  template <Json (RankProcess::*kCall)(const Json&)>
  Json Alone(const Json& params) {
    const std::lock_guard alone(receiving_);
    return (this->*kCall)(params);
  }

  Json Stage(const Json& params) {
    trace_.Begin(params.value("trace_spans", std::size_t{0}));
    receiver_->SetChannel(params.value("channel", options_.channel));
    TakeTimeout(params);
    Json answer = Reported("stage", [&] {
      receiver_->Stage(SourceOf(params, parallel_.engine_rank(), previous_ ? &*previous_ : nullptr),
                       params.value("attempt", std::uint64_t{0}));
      if (!WritesLayers(options_.commit)) WriteVersion(options_.version_fd, receiver_->staged_version());
      if (params.value("prepare", false)) receiver_->Prepare();
    });
    answer["prepared"] = params.value("prepare", false);
    return answer;
  }

  void TakeTimeout(const Json& params) {
    if (!params.contains("timeout_ms")) return;
    receiver_->SetTimeout(std::chrono::milliseconds(params["timeout_ms"].get<std::int64_t>()));
  }

  // Answers with the report even if the call failed, so that what had happened by then travels with the error.
  template <class Call>
  Json Reported(const char* name, const Call& call) {
    Json answer;
    try {
      const TraceScope span(trace_.Lane(name, TraceKind::kCall));
      call();
    } catch (const Error& error) {
      answer["error"] = ErrorToJson(error);
    }
    answer["report"] = Report();
    return answer;
  }

  // With this process's id, whose the buffers are that the report's digest is of.
  Json Report() const {
    Json report = Json::parse(receiver_->report().ToJson());
    report["pid"] = ::getpid();
    return report;
  }

  Json Cancel(const Json& params) {
    if (params.contains("attempt")) receiver_->Cancel(params["attempt"].get<std::uint64_t>());
    if (params.contains("comparison")) comparing_.Cancel(params["comparison"].get<std::uint64_t>());
    if (params.contains("adapter_load")) adapters_->Cancel(params["adapter_load"].get<std::uint64_t>());
    return Json::object();
  }

  Json RelayCounts(const Json& /*params*/) { return RelayCountsToJson(relay_takers_.Counts()); }
  Json FillAdapter(const Json& params) { return adapters_->Fill(params); }
  Json MoveAdapter(const Json& params) {
    const std::lock_guard moving(moving_);
    if (memory_.asleep()) throw Error(ErrorCode::kFailedPrecondition, "this rank sleeps: no adapter can be moved");
    return adapters_->Move(params);
  }
  Json CompareAdapter(const Json& params) { return adapters_->Compare(params); }
  Json Abort(const Json& /*params*/) {
    receiver_->Abort();
    return Json::object();
  }

  Json AdoptStaged(const Json& /*params*/) {
    receiver_->AdoptStaged(ReadVersion(options_.version_fd));
    return Json::object();
  }

  Json Prepare(const Json& /*params*/) {
    const TraceScope span(trace_.Lane("prepare", TraceKind::kCall));
    receiver_->Prepare();
    return Json::object();
  }

  Json Commit(const Json& params) {
    TakeTimeout(params);
    const WeightsLender::Change change(*lender_, *receiver_);
    Json answer = Reported("commit", [&] {
      if (previous_ && serves_ && params.value("keep", false)) previous_->Keep(*receiver_);
      receiver_->Commit();
      serves_ = true;
      if (params.value("flush_kv_cache", true)) engine_->DropAll();
    });
    if (!answer.contains("error") && receiver_->report().staged_bytes <= kVerifiedAtOnce) {
      answer["read_back"] = Reported("read_back", [this] { receiver_->VerifyServed(); });
    }
    return answer;
  }

  Json RollBack(const Json& /*params*/) {
    const TraceScope span(trace_.Lane("roll_back", TraceKind::kCall));
    const WeightsLender::Change change(*lender_, *receiver_);
    return {{"whole", receiver_->RollBack()}};
  }

  // Params: {"tags", "level"}. Whoever asks has seen to it that no pass and no reload is under way.
  Json Sleep(const Json& params) {
    const Json& tags = params["tags"];
    const auto level = params["level"].get<SleepLevel>();
    if (HasTag(tags, "kv_cache")) engine_->DropAll();
    if (HasTag(tags, "weights")) {
      const WeightsLender::Change change(*lender_, *receiver_);
      if (level == SleepLevel::kDiscard) {
        receiver_->LoseServed();
      } else {
        receiver_->ReleaseMemory();
      }
    }
    const std::lock_guard no_move(moving_);
    Json given_back = memory_.Sleep(tags, level);
    GiveFreedMemoryBack();
    return given_back;
  }

  Json WakeUp(const Json& params) {
    memory_.Wake(params["tags"]);
    return Json::object();
  }

  Json Lend(const Json& params) {
    const LenderOptions options{params["bind"].get<std::string>(), Keys::From(options_.keys)};
    Json lent = {{"endpoint", lender_->Lend(VersionFromJson(params["version"]), options)}};
    if (receiver_->noise()) lent["clean_digest"] = receiver_->clean().ServedDigest().ToHex();
    if (adapters_) lent["places"] = adapters_->Lend(params["places"], *lender_, options);
    return lent;
  }

  std::unique_ptr<Module> BuildModel() const {
    std::unique_ptr<Module> model = files_.BuildTree(parallel_);
    HoldScales(*model, options_.scales);
    return model;
  }

  Json Verify(const Json& /*params*/) {
    const TraceScope span(trace_.Lane("verify", TraceKind::kCall));
    receiver_->VerifyServed();
    return Report();
  }

  // What was recorded since `stage` asked for it. Nothing more is.
  Json Trace(const Json& /*params*/) {
    return ProcessTraceToJson(
        TraceOfThisProcess("rank " + std::to_string(parallel_.engine_rank()), "rank", trace_.Take()));
  }

  Json Digests(const Json& /*params*/) {
    return {{"served_digest", receiver_->captured().ServedDigest().ToHex()},
            {"buffers_digest", receiver_->captured().TableDigest().ToHex()},
            {"pid", ::getpid()}};
  }

  Json Export(const Json& params) {
    return ExportRank(receiver_->clean(), params["directory"].get<std::string>(), parallel_, options_.recipe,
                      VersionFromJson(params["version"]));
  }

  Json Compare(const Json& params) {
    return CompareRank(*receiver_, BuildModel(), parallel_, QuantizationOf(options_), CheckpointFromJson(params),
                       comparing_.Begin(params["comparison"].get<std::uint64_t>()));
  }

  Json Step(const Json& params) {
    // Ranks that were started anew may be called before the caller has noticed.
    if (!serves_) throw Error(ErrorCode::kFailedPrecondition, "a forward pass before this rank has any weights");
    return ForwardStep(*engine_, parallel_, params);
  }

  Json Drop(const Json& params) {
    for (const Json& sequence : params["sequences"]) engine_->Drop(sequence.get<std::uint64_t>());
    return Json::object();
  }

  const RankOptions options_;
  JsonStream& stream_;  // connected to the parent
  RankMemory memory_;
  const ModelFiles files_;
  const ParallelConfig parallel_;
  TakerTally relay_takers_;
  ProgressPace pace_;
  TraceRecorder trace_;                   // guarded by receiving_
  std::optional<RankPeers> peers_;        // on the CPU
  std::optional<RankAdapters> adapters_;  // nullopt: there are no slots
  std::unique_ptr<Engine> engine_;
  AttemptStop comparing_;
  std::mutex receiving_;  // held by calls that work on receiver_
  std::mutex moving_;     // held while an adapter is moved, and while memory falls asleep
  std::unique_ptr<Receiver> receiver_;
  std::optional<PreviousVersion> previous_;  // nullopt: none is kept
  std::unique_ptr<WeightsLender> lender_;
  bool serves_;  // has a whole version, or what its memory brought back; forward thread only
  CallQueue forward_calls_;
  CallQueue staging_calls_;
  CallQueue moving_calls_;
};

}  // namespace

int RunRank(const RankOptions& options, const std::optional<RankOnDevice>& on_device) {
  JsonStream stream{UniqueFd(options.link_fd)};
  std::optional<RankProcess> process;
  try {
    process.emplace(options, on_device, stream);
  } catch (const std::exception& error) {
    if (!stream.Send({{"failed", ErrorToJson(ErrorOfCall(error))}})) throw;
    return 1;  // the parent says why
  }
  process->Run();
  return 0;
}

}  // namespace layercast
