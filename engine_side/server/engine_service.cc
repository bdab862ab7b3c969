#include "engine_side/server/engine_service.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine_side/server/adapter_calls.h"
#include "engine_side/server/engine_identity.h"
#include "engine_side/server/generate/generator.h"
#include "engine_side/server/generate_calls.h"
#include "engine_side/server/group/model_files.h"
#include "engine_side/server/group/relay_counts.h"
#include "engine_side/server/group/reload_request.h"
#include "engine_side/server/http/engine_door.h"
#include "engine_side/server/reload/followed_publisher.h"
#include "engine_side/server/reload/reloader.h"
#include "engine_side/server/reload/sleeper.h"
#include "engine_side/server/reload/trial.h"
#include "engine_side/server/reload/version_waits.h"
#include "engine_side/server/request_paths.h"
#include "engine_side/server/served_weights.h"
#include "engine_side/server/slow_calls.h"
#include "engine_side/server/start_checks.h"
#include "engine_side/server/update_bracket.h"
#include "layercast/error.h"
#include "layercast/model/config.h"
#include "src/base/log.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kHoldLease{10'000};
constexpr std::chrono::milliseconds kPauseLease{60'000};
constexpr std::chrono::milliseconds kVersionWait{300'000};

// Of the reload that a call is about.
std::uint64_t TicketFrom(const Json& params) { return params.at("ticket").get<std::uint64_t>(); }

}  // namespace

class EngineService::Impl {
 public:
  explicit Impl(const EngineServiceOptions& options)
      : options_(Checked(options)),
        paths_(options.allow_paths, options.endpoint),
        files_(ModelFiles::Read(
            {.model = options.ranks.model, .draft = options.ranks.draft, .weight_rules = options.ranks.weight_rules})),
        config_(CheckedConfig(options.ranks, files_)),
        max_model_len_(ModelLength(options.ranks, config_)),
        adapter_bytes_(AdapterBytesOf(RankOptions(), files_)),
        adapters_(options.ranks.adapter_slots, AdapterSwitchNamed(options.adapter_switch), options.ranks.host_adapters),
        ranks_(RankOptions()),
        generator_(ranks_, adapters_),
        reloader_(ranks_, generator_, adapters_, options.pause_mode, MakeOtlpSender(options.otlp)),
        sleeper_(ranks_, generator_, reloader_),
        trial_({.reload = [this](const Json& params) { return Reload(params); },
                .served = [this] { return reloader_.version(); },
                .previous = [this] { return reloader_.previous(); },
                .keeps_previous = options.ranks.keep_previous}),
        waits_([this] { return reloader_.version(); }),
        generating_(generator_, followed_, [this] { return reloader_.version(); },
                    {config_, max_model_len_, options_.max_staleness}),
        followed_(
            Keys::From(options.ranks.keys), [this] { return reloader_.version(); }, options.follow),
        calls_({.before = [this] { LookAtRanks(); },
                .between = [this] { trial_.GoBackIfDue(); },
                .due = [this] { return trial_.due(); }}) {
    reloader_.OnServed([this] { waits_.Notice(); });
    try {
      rpc_ = std::make_unique<RpcServer>(
          options.endpoint, Keys::From(options.ranks.keys),
          [this](const std::string& method, Json&& params, const RpcReply& reply) {
            Dispatch(method, std::move(params), reply);
          },
          RpcServerOptions{.connection_budget = options.connection_budget});
      reloader_.SetOwnEndpoint(endpoint());
      if (!options.metrics.bind.empty()) {
        metrics_ = std::make_unique<EngineMetrics>(options.metrics, [this] { return Look(); });
      }
      if (!options.door.bind.empty()) door_ = std::make_unique<EngineDoor>(options.door, Behind());
    } catch (...) {
      calls_.End();
      throw;
    }
  }

  ~Impl() {
    End();
    calls_.End();  // while answers can still be sent: a caller whose reload fails is told that the engine ends
    door_.reset();
    metrics_.reset();
    rpc_.reset();
  }

  // Loads on the reloading thread, not on the caller's: a reload starts lost ranks anew, and the thread that does so
  // must live as long as they.
  void LoadModel() {
    std::promise<Json> answered;
    const RpcReply reply([&answered](Json answer) { answered.set_value(std::move(answer)); });
    calls_.Add({.run = [this, reply] { reply.Result(FirstLoad()); }, .reply = reply, .lasting = true});
    const Json answer = answered.get_future().get();
    if (answer.contains("error")) throw ErrorFromJson(answer["error"]);
    const Json& outcome = answer["result"];
    if (!outcome["ok"].get<bool>()) throw ErrorFromJson(outcome["error"], "loading " + options_.ranks.model + ": ");
    loaded_ = true;
  }

  // The outcome of the weights, or of the first adapter that failed.
  Json FirstLoad() {
    Json outcome = Noted(options_.first_load, reloader_.Reload(options_.first_load));
    for (const Json& adapter : options_.first_adapters) {
      if (outcome["ok"].get<bool>()) outcome = reloader_.LoadAdapter(adapter);
    }
    return outcome;
  }

  // Ends the ranks. A reload under way fails, so that nobody waits for its deadline.
  void End() {
    held_.Close();
    waits_.Close();
    ranks_.End();
  }

  std::string endpoint() const { return rpc_->endpoint(); }

  Json Ready() const {
    Json ready = {{"ready", true}, {"endpoint", endpoint()}};
    ready["metrics"] = metrics_ == nullptr ? Json() : Json(metrics_->address());
    ready["http"] = door_ == nullptr ? Json() : Json(door_->address());
    ready.update(Identity());
    ready["version"] = reloader_.Status()["version"];
    return ready;
  }

  Json Status() const {
    Json status = reloader_.Status();
    status.update(Identity());
    status["asleep"] = sleeper_.Status();
    status["trial"] = trial_.Status();
    if (!status["asleep"].is_null() && !status["progress"].is_object()) status["state"] = "asleep";
    return status;
  }

 private:
  RankGroupOptions RankOptions() {
    RankGroupOptions ranks = options_.ranks;
    ranks.max_model_len = max_model_len_;
    ranks.adapter_dtype = options_.adapter_dtype.value_or(config_.dtype);
    ranks.files = files_;
    ranks.on_rank_lost = [this](int rank, const Error& why) {
      if (loaded_) log::warn("rank {}: {}", rank, why.what());  // else the load fails with it, and its caller says so
    };
    ranks.on_weights_lost = [this] { reloader_.LoseWeights("a rank was lost"); };
    return ranks;
  }

  EngineLook Look() {
    return {Status(), generator_.Counts(), calls_.size(), ranks_.generation(), rpc_->refusals(), RelayCountsOf(ranks_)};
  }

  EngineBehind Behind() {
    return {.model = options_.ranks.model,
            .max_length = max_model_len_,
            .insecure = options_.ranks.keys.insecure,
            .endpoint = endpoint(),
            .keys = Keys::From(options_.ranks.keys),
            .status = [this] { return Status(); },
            .look = [this] { return Look(); },
            .generate = [this](const Json& params, const RpcReply& reply,
                               const SequenceNews& news) { generating_.Begin(params, reply, news); },
            .followed = [this] { return followed_.publisher(); }};
  }

  Json Identity() const { return IdentityOf(options_.ranks, ranks_.pids(), adapter_bytes_); }

  // Runs on the RPC thread. What takes time is handed to the worker or the generator, which answer later.
  void Dispatch(const std::string& method, Json&& params, const RpcReply& reply) {
    static const std::map<std::string, void (Impl::*)(const Json&, const RpcReply&)> kQuick = {
        {"status", &Impl::AnswerStatus},
        {"generate", &Impl::Generate},
        {"wait_for_version", &Impl::WaitForVersion},
        {"resume", &Impl::Resume},
        {"list_adapters", &Impl::ListAdapters},
        {"pin_adapter", &Impl::PinAdapter},
        {"hold_weights", &Impl::HoldWeights},
        {"prepare_weights", &Impl::PrepareWeights},
        {"commit_weights", &Impl::CommitWeights},
        {"abort_weights", &Impl::AbortWeights},
        {"init_weight_transfer_engine", &Impl::InitWeightTransfer},
        {"start_weight_update", &Impl::StartUpdate},
        {"finish_weight_update", &Impl::FinishUpdate}};
    struct Slow {
      void (Impl::*run)(const Json&, const RpcReply&);
      bool lasting = false;     // what it does outlasts its answer, so that it is done also when the caller is gone
      bool asleep_too = false;  // what sleeps can be asked for it
    };
    static const std::map<std::string, Slow> kSlow = {{"reload_weights", {&Impl::ReloadWeights, true, true}},
                                                      {"stage_weights", {&Impl::StageWeights, false, true}},
                                                      {"update_weights", {&Impl::UpdateWeights, true, true}},
                                                      {"promote_weights", {&Impl::Promote, true, true}},
                                                      {"revoke_weights", {&Impl::Revoke, true, true}},
                                                      {"hold_trial", {&Impl::HoldTrial, false, true}},
                                                      {"pause", {&Impl::Pause, false, true}},
                                                      {"sleep", {&Impl::Sleep, false, true}},
                                                      {"wake_up", {&Impl::WakeUp, false, true}},
                                                      {"export", {&Impl::Export, true}},
                                                      {"verify", {&Impl::Verify}},
                                                      {"lend_weights", {&Impl::LendWeights}},
                                                      {"digests", {&Impl::Digests}},
                                                      {"load_adapter", {&Impl::LoadAdapter, true}},
                                                      {"unload_adapter", {&Impl::UnloadAdapter, false, true}}};
    if (!loaded_ && method != "status") throw Error(ErrorCode::kUnavailable, "this engine is still loading its model");
    if (const auto quick = kQuick.find(method); quick != kQuick.end()) return (this->*quick->second)(params, reply);
    const auto slow = kSlow.find(method);
    if (slow == kSlow.end()) throw Error(ErrorCode::kNotFound, "this engine has no method '" + method + "'");
    auto call = [this, method, called = slow->second, params = std::move(params), reply] {
      if (!called.asleep_too) sleeper_.ExpectAwake(method);
      (this->*called.run)(paths_.Confined(params), reply);
    };
    calls_.Add({std::move(call), reply, slow->second.lasting});
  }

  // One rank may have died while nobody called it; only now is known what is served. Before anything was, the load
  // fails with why it died.
  void LookAtRanks() {
    if (loaded_) ranks_.RestartIfLost();
    sleeper_.KeepAsleep();
  }

  // Who asks several times a second leaves the last report out, which may be long.
  void AnswerStatus(const Json& params, const RpcReply& reply) {
    Json status = Status();
    if (!params.value("last_report", true)) status.erase("last_report");
    reply.Result(std::move(status));
  }

  void Generate(const Json& params, const RpcReply& reply) { generating_.Begin(params, reply); }

  void WaitForVersion(const Json& params, const RpcReply& reply) {
    waits_.Add(LeastVersionFrom(params), Deadline::After(MillisecondsFrom(params, "timeout_ms", kVersionWait)), reply);
  }

  void ReloadWeights(const Json& params, const RpcReply& reply) { reply.Result(trial_.Reload(params)); }
  void Promote(const Json& params, const RpcReply& reply) { reply.Result(trial_.Promote(params)); }
  void Revoke(const Json& params, const RpcReply& reply) { reply.Result(trial_.Revoke(params)); }
  void HoldTrial(const Json& params, const RpcReply& reply) { reply.Result(trial_.Hold(params)); }

  // Also of a trial that ends by itself.
  Json Reload(const Json& params) {
    LookAtRanks();
    sleeper_.WakeToReload();
    return Noted(params, reloader_.Reload(params));
  }

  // From the first version on that it has taken from a publisher, the engine follows that one.
  Json Noted(const Json& params, Json outcome) {
    if (metrics_ != nullptr) metrics_->Synced(outcome);
    if (door_ != nullptr) door_->Synced(outcome);
    if (outcome["ok"].get<bool>() && IsGiven(params, "publisher")) {
      followed_.Follow(params["publisher"].get<std::string>());
    }
    trial_.Note();
    return outcome;
  }

  void Sleep(const Json& params, const RpcReply& reply) { reply.Result(sleeper_.Sleep(params)); }
  void WakeUp(const Json& params, const RpcReply& reply) { reply.Result(sleeper_.WakeUp(params)); }

  // The first of three calls that make up a reload, for a controller that has several engines take a version together.
  void StageWeights(const Json& params, const RpcReply& reply) {
    if (params.contains("adapter")) sleeper_.ExpectAwake("stage_weights of an adapter");
    sleeper_.WakeToReload();
    held_.Begin(MillisecondsFrom(params, "lease_ms", kHoldLease), reply);
    held_.End(params.contains("adapter") ? reloader_.LoadAdapter(params["adapter"], &held_)
                                         : Noted(params, reloader_.Reload(params, &held_)));
  }

  void LoadAdapter(const Json& params, const RpcReply& reply) { reply.Result(reloader_.LoadAdapter(params)); }
  void UnloadAdapter(const Json& params, const RpcReply& reply) {
    ::layercast::UnloadAdapter(adapters_, params, reply);
  }
  void ListAdapters(const Json& /*params*/, const RpcReply& reply) {
    reply.Result(::layercast::ListAdapters(adapters_, adapter_bytes_));
  }
  void PinAdapter(const Json& params, const RpcReply& reply) {
    adapters_.Pin(params.at("name").get<std::string>(), params.value("pinned", true));
    reply.Result({{"adapters", adapters_.List()}});
  }

  void PrepareWeights(const Json& params, const RpcReply& reply) {
    held_.Say(HeldReload::Word::kPrepare, TicketFrom(params), reply);
  }
  void CommitWeights(const Json& params, const RpcReply& reply) {
    held_.Say(HeldReload::Word::kCommit, TicketFrom(params), reply);
  }
  void AbortWeights(const Json& params, const RpcReply& reply) {
    held_.Say(HeldReload::Word::kAbort, TicketFrom(params), reply, params.value("reason", ""));
  }

  void HoldWeights(const Json& params, const RpcReply& reply) {
    held_.Renew(TicketFrom(params));
    reply.Result(Json::object());
  }

  void Pause(const Json& params, const RpcReply& reply) {
    const std::chrono::milliseconds lease = MillisecondsFrom(params, "lease_ms", kPauseLease);
    generator_.Pause(PauseModeNamed(params.value("mode", options_.pause_mode)), lease,
                     Deadline::After(lease).OrStop(reply.abandoned()));
    reply.Result(Json::object());
  }

  void Resume(const Json& /*params*/, const RpcReply& reply) {
    generator_.Resume();
    reply.Result(Json::object());
  }

  void InitWeightTransfer(const Json& /*params*/, const RpcReply& reply) { reply.Result(Identity()); }

  void StartUpdate(const Json& /*params*/, const RpcReply& reply) {
    bracket_.Start();
    reply.Result(Json::object());
  }
  void UpdateWeights(const Json& params, const RpcReply& reply) {
    bracket_.ExpectStarted();
    ReloadWeights(params, reply);
  }
  void FinishUpdate(const Json& /*params*/, const RpcReply& reply) {
    bracket_.Finish();
    reply.Result({{"version", reloader_.Status()["version"]}});
  }

  // The version that is served, for a call that is to `read` it.
  Version Served(const std::string& read) const {
    const std::optional<Version> served = reloader_.version();
    if (!served) throw Error(ErrorCode::kFailedPrecondition, "this engine is torn: it has no version to " + read);
    return *served;
  }

  void Export(const Json& params, const RpcReply& reply) {
    const Version served = Served("export");
    reply.Result(ExportServed(ranks_, served, files_.description(), params.at("directory").get<std::string>()));
  }

  void Verify(const Json& params, const RpcReply& reply) {
    static_cast<void>(Served("verify"));
    if (params.contains("adapter")) return reply.Result(CompareAdapter(ranks_, adapters_, params));
    reply.Result(CompareServed(ranks_, params, ++comparisons_, reply.abandoned()));
  }

  // Slow calls run on one thread, so no reload can come between the version and its digests.
  void LendWeights(const Json& params, const RpcReply& reply) {
    reply.Result(LendServed(ranks_, reloader_.Status(), {endpoint(), params.value("adapters", false)}));
  }

  void Digests(const Json& /*params*/, const RpcReply& reply) {
    reply.Result({{"ranks", ranks_.Call("digests", Json::object(), Deadline::After(kRankTimeout))}});
  }

  const EngineServiceOptions options_;
  const RequestPaths paths_;
  const ModelFiles files_;
  const ModelConfig config_;
  const std::int64_t max_model_len_;
  std::atomic<bool> loaded_{false};  // before the ranks, which may be lost at once
  const AdapterBytes adapter_bytes_;
  AdapterRegistry adapters_;
  RankGroup ranks_;
  Generator generator_;
  Reloader reloader_;
  Sleeper sleeper_;
  HeldReload held_;
  UpdateBracket bracket_;
  Trial trial_;
  VersionWaits waits_;
  GenerateCalls generating_;  // before whose thread goes on with its calls
  FollowedPublisher followed_;
  std::uint64_t comparisons_ = 0;  // so far; the reloading thread's
  SlowCalls calls_;
  std::unique_ptr<RpcServer> rpc_;
  std::unique_ptr<EngineMetrics> metrics_;  // null: nobody asks for them
  std::unique_ptr<EngineDoor> door_;        // null: nobody asks over HTTP
};

EngineService::EngineService(const EngineServiceOptions& options) : impl_(std::make_unique<Impl>(options)) {}
EngineService::~EngineService() = default;
void EngineService::LoadModel() { impl_->LoadModel(); }
void EngineService::End() { impl_->End(); }
std::string EngineService::endpoint() const { return impl_->endpoint(); }
Json EngineService::Ready() const { return impl_->Ready(); }
Json EngineService::Status() const { return impl_->Status(); }

}  // namespace layercast
