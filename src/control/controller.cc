#include "layercast/controller.h"

#include <algorithm>
#include <functional>
#include <future>
#include <mutex>
#include <set>
#include <stop_token>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/threads/thread_name.h"
#include "src/control/answer_time.h"
#include "src/control/engine_clients.h"
#include "src/control/engine_outcome.h"
#include "src/control/progress_watch.h"
#include "src/control/reload_together.h"
#include "src/control/rpc.h"
#include "src/trace/reload_trace.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kQuickCall{30'000};  // for calls that an engine answers at once
constexpr std::chrono::hours kLongestWait{24};

// {"lineage", "step", "digest"}, as far as they are known.
Json Naming(const std::optional<Version>& version) {
  Json params = Json::object();
  if (!version) return params;
  params["lineage"] = version->lineage;
  params["step"] = version->step;
  if (version->digest) params["digest"] = version->digest.ToHex();
  return params;
}

Json ReloadParams(const ReloadRequest& request) {
  Json params = {{"timeout_ms", TimeWithin(request.timeout).count()}};
  if (!request.publisher.empty()) params["publisher"] = request.publisher;
  params.update(Naming(request.version));
  if (!request.store.empty()) params["store"] = request.store;
  if (request.trial.count() > 0) params["trial_ms"] = request.trial.count();
  if (!request.way_back.empty()) params["way_back"] = request.way_back;
  if (!request.engine.empty()) params["engine"] = request.engine;
  if (request.previous) params["previous"] = true;
  if (request.partial) params["partial"] = true;
  if (request.allow_config_change) params["allow_config_change"] = true;
  if (request.clean) params["noise"] = "off";
  if (!request.may_keep.empty()) params["may_keep"] = request.may_keep;
  const bool all = request.adapters == std::vector<std::string>{"*"};
  if (!request.adapters.empty()) params["adapters"] = all ? Json("*") : Json(request.adapters);
  if (request.keep_adapters) params["keep_adapters"] = true;
  if (!request.weights_path.empty()) {
    params["weights_path"] = request.weights_path;
    params["is_checkpoint_format"] = request.is_checkpoint_format;
    params["load_format"] = request.load_format;
    for (const auto& [prefix, path] : request.secondary_weights) {
      params["secondary_weights"].push_back({{"prefix", prefix}, {"path", path}});
    }
  }
  if (!request.channel.empty()) params["channel"] = request.channel;
  if (!request.pause_mode.empty()) params["pause_mode"] = request.pause_mode;
  return params;
}

Json AdapterParams(const AdapterRequest& request) {
  Json params = {{"name", request.name}, {"timeout_ms", TimeWithin(request.timeout).count()}, {"pin", request.pin}};
  if (!request.path.empty()) params["weights_path"] = request.path;
  if (!request.publisher.empty()) params["publisher"] = request.publisher;
  if (!request.adapter.empty()) params["adapter"] = request.adapter;
  if (request.version) {
    params["lineage"] = request.version->lineage;
    params["step"] = request.version->step;
  }
  return params;
}

void CheckDigest(const std::optional<Version>& version, EngineOutcome& outcome) {
  if (!outcome.ok || !version || !version->digest) return;
  if (outcome.version && outcome.version->digest == version->digest) return;
  outcome.ok = false;
  outcome.error.emplace(ErrorCode::kCorrupt, "engine " + outcome.endpoint + ": expected version " +
                                                 version->ToString() + ", serves " +
                                                 (outcome.version ? outcome.version->ToString() : "none"));
}

struct EngineCall {
  std::string method;
  Json params = Json::object();
  Deadline deadline;             // until when the caller waits
  ReloadTrace* trace = nullptr;  // null: nobody wants a timeline
};

// Reads an outcome from an engine's answer.
using ReadOutcome = std::function<EngineOutcome(const std::string& endpoint, const Json& answer)>;

EngineOutcome Done(const std::string& endpoint, const Json& /*answer*/) { return {.endpoint = endpoint, .ok = true}; }

// The error of the first engine that failed, in words; empty: none did.
std::string FirstError(const std::vector<EngineOutcome>& outcomes) {
  const auto failed = std::ranges::find_if(outcomes, [](const EngineOutcome& one) { return one.error.has_value(); });
  return failed == outcomes.end() ? "" : NamingEngine(failed->endpoint, failed->error->what());
}

EngineOutcome CallOne(EngineClients& clients, std::size_t engine, const EngineCall& call, const ReadOutcome& read) {
  const std::string& endpoint = clients.endpoints()[engine];
  EngineOutcome outcome{.endpoint = endpoint};
  try {
    const Json answer = clients.Use(engine, [&](RpcClient& client) {
      return OnTrace(call.trace, endpoint, call.method, client, call.params, call.deadline);
    });
    outcome = read(endpoint, answer);
  } catch (const Error& error) {
    outcome.error = error;
  } catch (const Json::exception& error) {
    outcome.error.emplace(ErrorCode::kCorrupt, "engine " + endpoint + ": " + call.method + ": " + error.what());
  }
  return outcome;
}

// Calls all engines at the same time, or one after the other where there are no threads for that. The outcomes are in
// the order of the endpoints. One engine of which nothing is told meanwhile is called on this thread.
std::vector<EngineOutcome> CallEach(EngineClients& clients, const EngineCall& call, const ReadOutcome& read,
                                    ProgressWatch& watch) {
  const std::size_t engines = clients.endpoints().size();
  if (engines == 1 && !watch.tells()) return {CallOne(clients, 0, call, read)};
  std::vector<std::future<EngineOutcome>> under_way;
  for (std::size_t engine = 0; engine < engines; ++engine) {
    under_way.push_back(std::async(std::launch::async | std::launch::deferred, [&, engine] {
      NameThisThread("lc-controller");
      return CallOne(clients, engine, call, read);
    }));
  }
  return watch.Await(under_way);
}

// The same for a call that is no reload, of which nothing is told before it ends.
std::vector<EngineOutcome> CallEach(EngineClients& clients, const EngineCall& call, const ReadOutcome& read) {
  ProgressWatch none({}, {});
  return CallEach(clients, call, read, none);
}

GeneratedSequence SequenceFromJson(const Json& json) {
  GeneratedSequence sequence;
  sequence.tokens = json.at("tokens").get<std::vector<std::int32_t>>();
  sequence.logprobs = json.at("logprobs").get<std::vector<double>>();
  sequence.finish = json.at("finish").get<std::string>();
  for (const Json& span : json.at("spans")) {
    sequence.spans.push_back({.start = span.at("start").get<std::size_t>(),
                              .end = span.at("end").get<std::size_t>(),
                              .version = VersionFromJson(span.at("version"))});
    if (span.contains("adapter")) sequence.spans.back().adapter = VersionFromJson(span["adapter"]);
  }
  return sequence;
}

// Two calls would go to one engine at the same time, and its outcome would be there twice.
void CheckNamedOnce(const std::vector<std::string>& endpoints) {
  std::set<std::string_view> seen;
  for (const std::string& endpoint : endpoints) {
    if (seen.insert(endpoint).second) continue;
    throw Error(ErrorCode::kInvalidArgument, "engine " + endpoint + " is named twice: expected each of them once");
  }
}

}  // namespace

class Controller::Impl {
 public:
  Impl(std::vector<std::string> endpoints, const KeyOptions& keys)
      : key_options_(keys), keys_(Keys::From(keys)), clients_(std::move(endpoints), keys_) {
    if (clients_.endpoints().empty())
      throw Error(ErrorCode::kInvalidArgument, "a controller needs an engine's endpoint");
    CheckNamedOnce(clients_.endpoints());
  }

  const std::vector<std::string>& endpoints() const { return clients_.endpoints(); }
  EngineClients& clients() { return clients_; }
  const KeyOptions& key_options() const { return key_options_; }
  const Keys& keys() const { return keys_; }

  Json Call(std::size_t engine, const std::string& method, const Json& params, std::chrono::milliseconds timeout) {
    return Call(engine, method, params, Until(timeout));
  }

  Json Call(std::size_t engine, const std::string& method, const Json& params, Deadline deadline) {
    const std::size_t engines = endpoints().size();
    if (engine >= engines) {
      throw Error(ErrorCode::kInvalidArgument,
                  "engine " + std::to_string(engine) + " of " + std::to_string(engines) + ", counted from 0");
    }
    return clients_.Use(engine, [&](RpcClient& client) { return client.Call(method, params, deadline); });
  }

  // Begins a call, and returns the token that Cancel stops.
  std::stop_token Begin() {
    const std::lock_guard lock(mutex_);
    under_way_ = std::stop_source();
    return under_way_.get_token();
  }
  Deadline Until(std::chrono::milliseconds timeout) { return Deadline::After(timeout).OrStop(Begin()); }
  void Cancel() {
    const std::lock_guard lock(mutex_);
    under_way_.request_stop();
  }

 private:
  const KeyOptions key_options_;
  const Keys keys_;
  EngineClients clients_;
  std::mutex mutex_;
  std::stop_source under_way_;  // of the latest call; guarded by mutex_
};

Controller::Controller(std::vector<std::string> endpoints, const KeyOptions& keys)
    : impl_(std::make_unique<Impl>(std::move(endpoints), keys)) {}
Controller::~Controller() = default;
const std::vector<std::string>& Controller::endpoints() const { return impl_->endpoints(); }
void Controller::Cancel() { impl_->Cancel(); }
const KeyOptions& Controller::key_options() const { return impl_->key_options(); }
std::stop_token Controller::BeginCall() { return impl_->Begin(); }

std::vector<EngineOutcome> Controller::ReloadWeights(const ReloadRequest& request) {
  ReloadTrace trace({.file = request.trace, .on_trace = request.on_trace, .traceparent = request.traceparent});
  return trace.Of([&] { return ReloadTraced(request, trace); }, FirstError);
}

std::vector<EngineOutcome> Controller::ReloadTraced(const ReloadRequest& request, ReloadTrace& trace) {
  ProgressWatch watch(endpoints(), request.on_progress, impl_->keys());
  Json params = ReloadParams(request);
  trace.AddTo(params);
  if (request.all_or_none) {
    return ReloadTogether(impl_->clients(), params, request.version, request.timeout, impl_->Begin(), watch, &trace);
  }
  const ReadOutcome read = [&request](const std::string& endpoint, const Json& answer) {
    EngineOutcome outcome = OutcomeFromJson(endpoint, answer);
    CheckDigest(request.version, outcome);
    return outcome;
  };
  return CallEach(impl_->clients(), {"reload_weights", params, impl_->Until(request.timeout), &trace}, read, watch);
}

std::vector<EngineOutcome> Controller::Promote(const std::optional<Version>& version,
                                               std::chrono::milliseconds timeout) {
  const ReadOutcome read = [](const std::string& endpoint, const Json& answer) {
    return EngineOutcome{.endpoint = endpoint, .ok = true, .version = VersionFromJson(answer.at("version"))};
  };
  return CallEach(impl_->clients(), {"promote_weights", Naming(version), impl_->Until(timeout)}, read);
}

std::vector<EngineOutcome> Controller::Revoke(const std::optional<Version>& version,
                                              std::chrono::milliseconds timeout) {
  return CallEach(impl_->clients(), {"revoke_weights", Naming(version), impl_->Until(timeout)}, OutcomeFromJson);
}

std::vector<EngineOutcome> Controller::LoadAdapter(const AdapterRequest& request) {
  ProgressWatch none({}, {});
  const Json params = AdapterParams(request);
  if (request.all_or_none) {
    const Json wrapped = {{"adapter", params}, {"timeout_ms", params["timeout_ms"]}};
    return ReloadTogether(impl_->clients(), wrapped, request.version, request.timeout, impl_->Begin(), none);
  }
  const ReadOutcome read = [&request](const std::string& endpoint, const Json& answer) {
    EngineOutcome outcome = OutcomeFromJson(endpoint, answer);
    CheckDigest(request.version, outcome);
    return outcome;
  };
  return CallEach(impl_->clients(), {"load_adapter", params, impl_->Until(request.timeout)}, read, none);
}

std::vector<EngineOutcome> Controller::UnloadAdapter(const std::string& name) {
  return CallEach(impl_->clients(), {"unload_adapter", {{"name", name}}, impl_->Until(kQuickCall)}, Done);
}

std::vector<EngineOutcome> Controller::PinAdapter(const std::string& name, bool pin) {
  return CallEach(impl_->clients(), {"pin_adapter", {{"name", name}, {"pinned", pin}}, impl_->Until(kQuickCall)}, Done);
}

std::string Controller::ListAdapters(std::size_t engine) {
  return impl_->Call(engine, "list_adapters", Json::object(), kQuickCall).dump();
}

std::vector<EngineOutcome> Controller::Pause(const PauseRequest& request) {
  Json params = {{"lease_ms", request.lease.count()}};
  if (!request.mode.empty()) params["mode"] = request.mode;
  // An engine that cannot pause within the lease says why when the lease ends.
  return CallEach(impl_->clients(), {"pause", std::move(params), impl_->Until(request.lease + kAnswerTime)}, Done);
}

std::vector<EngineOutcome> Controller::Resume() {
  return CallEach(impl_->clients(), {"resume", Json::object(), impl_->Until(kQuickCall)}, Done);
}

std::vector<EngineOutcome> Controller::Sleep(const SleepRequest& request) {
  Json params = {{"level", request.level},
                 {"pause_mode", request.pause_mode},
                 {"timeout_ms", TimeWithin(request.timeout).count()}};
  if (!request.tags.empty()) params["tags"] = request.tags;
  const auto read = [](const std::string& endpoint, const Json& answer) {
    EngineOutcome outcome{.endpoint = endpoint, .ok = true};
    for (const Json& bytes : answer.at("given_back")) outcome.given_back += bytes.get<std::uint64_t>();
    return outcome;
  };
  return CallEach(impl_->clients(), {"sleep", std::move(params), impl_->Until(request.timeout)}, read);
}

std::vector<EngineOutcome> Controller::WakeUp(const std::vector<std::string>& tags, std::chrono::milliseconds timeout) {
  Json params = {{"timeout_ms", TimeWithin(timeout).count()}};
  if (!tags.empty()) params["tags"] = tags;
  return CallEach(impl_->clients(), {"wake_up", std::move(params), impl_->Until(timeout)}, Done);
}

std::vector<GeneratedSequence> Controller::Generate(const GenerateRequest& request, std::size_t engine) {
  Json params = {{"prompts", request.prompts},
                 {"max_new", request.max_new},
                 {"temperature", request.temperature},
                 {"top_p", request.top_p},
                 {"top_k", request.top_k},
                 {"seed", request.seed},
                 {"logprobs", true},
                 {"stop_tokens", request.stop_tokens},
                 {"ignore_eos", request.ignore_eos},
                 {"adapter", request.adapter}};
  if (request.least_version) params["least_version"] = VersionToJson(request.least_version);
  if (request.max_staleness) {
    params["max_staleness"] = {{"steps", *request.max_staleness}};
    if (request.heard_within) params["max_staleness"]["heard_within_ms"] = request.heard_within->count();
  }
  const Json result = impl_->Call(engine, "generate", params, request.timeout);
  try {
    std::vector<GeneratedSequence> sequences;
    for (const Json& answer : result.at("answers")) sequences.push_back(SequenceFromJson(answer));
    return sequences;
  } catch (const Json::exception& error) {
    throw Error(ErrorCode::kCorrupt, "engine " + endpoints()[engine] + ": generate: " + error.what());
  }
}

void Controller::WaitForVersion(const Version& least, std::chrono::milliseconds timeout, std::size_t engine) {
  const std::chrono::milliseconds within = std::min<std::chrono::milliseconds>(timeout, kLongestWait);
  impl_->Call(engine, "wait_for_version",
              {{"lineage", least.lineage}, {"step", least.step}, {"timeout_ms", within.count()}}, within + kAnswerTime);
}

std::string Controller::Status(std::size_t engine) {
  return impl_->Call(engine, "status", Json::object(), kQuickCall).dump();
}

}  // namespace layercast
