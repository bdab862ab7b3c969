// A canary: some engines take a version on trial, and the others once it is promoted.
#include <algorithm>
#include <list>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "layercast/controller.h"
#include "src/base/deadline.h"
#include "src/base/log.h"
#include "src/control/engine_outcome.h"
#include "src/control/held_version.h"
#include "src/control/json_forms.h"
#include "src/control/rpc.h"
#include "src/net/zmq/endpoint.h"

namespace layercast {
namespace {

using Milliseconds = std::chrono::milliseconds;

constexpr Milliseconds kCanaryCall{30'000};
constexpr Milliseconds kVerdictLook{200};  // between two looks at what others have said
constexpr Milliseconds kToDecide{10'000};  // beyond the deadlines of the caller

[[noreturn]] void Refuse(const std::string& engine, const std::string& why) {
  throw Error(ErrorCode::kFailedPrecondition, "canary: " + NamingEngine(engine, why));
}

bool Contains(const std::vector<std::string>& endpoints, const std::string& endpoint) {
  return std::ranges::find(endpoints, endpoint) != endpoints.end();
}

// Those of the engines that are no canaries.
std::vector<std::string> Others(const std::vector<std::string>& engines, const std::vector<std::string>& canaries) {
  if (canaries.empty())
    throw Error(ErrorCode::kInvalidArgument, "a canary needs an engine that takes the version first");
  for (const std::string& canary : canaries) {
    if (Contains(engines, canary)) continue;
    throw Error(ErrorCode::kInvalidArgument, "canary " + canary + ": expected one of the controller's engines");
  }
  std::vector<std::string> others = engines;
  std::erase_if(others, [&](const std::string& engine) { return Contains(canaries, engine); });
  return others;
}

Json StatusOf(RpcClient& engine, const Deadline& deadline) {
  return engine.Call("status", {{"last_report", false}}, deadline);
}

// Whether the engine may be on trial with what it was told to take. One that answered that it failed is not.
bool MayHaveTaken(const EngineOutcome& outcome) {
  if (outcome.ok || !outcome.error) return true;
  const ErrorCode code = outcome.error->code();
  return code == ErrorCode::kCancelled || code == ErrorCode::kUnavailable || code == ErrorCode::kDeadlineExceeded;
}

const EngineOutcome* FirstFailed(const std::vector<EngineOutcome>& outcomes) {
  const EngineOutcome* failed = nullptr;
  for (const EngineOutcome& outcome : outcomes) {
    if (outcome.ok) continue;
    const bool told = outcome.error && outcome.error->code() == ErrorCode::kCancelled;  // because of another's failure
    if (failed == nullptr || !told) failed = &outcome;
    if (!told) break;
  }
  return failed;
}

}  // namespace

class CanaryReload::Impl {
 public:
  Impl(const std::vector<std::string>& engines, const KeyOptions& keys, const CanaryRequest& request,
       const std::stop_token& stop)
      : engines_(engines),
        others_(Others(engines, request.canaries)),
        key_options_(keys),
        keys_(Keys::From(keys)),
        request_(request),
        canaries_(request.canaries, keys) {
    if (!others_.empty()) rest_.emplace(others_, keys);
    for (const std::string& canary : request.canaries) clients_.emplace_back("engine", canary, keys_);
    const Deadline deadline = Deadline::After(request.reload.timeout).OrStop(stop);
    CheckOthers(deadline);
    Hold(deadline);
    CheckCanaries(deadline);
    Take(stop);
  }

  ~Impl() {
    if (decided_) return;
    try {
      RollBack();
    } catch (const std::exception& error) {
      log::error("canary: {}; the canaries go back by themselves when the trial is over", error.what());
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const Version& version() const { return *version_; }
  const std::vector<EngineOutcome>& canaries() const { return taken_; }
  const std::vector<std::string>& others() const { return others_; }

  std::optional<bool> Await(Milliseconds most) {
    const Deadline deadline = Deadline::After(most).OrStop(stop_.get_token());
    while (true) {
      if (const std::optional<bool> said = Verdict()) return said;
      if (deadline.Stopped()) throw Error(ErrorCode::kCancelled, "canary: the wait for a verdict was given up");
      if (deadline.Passed()) return std::nullopt;
      std::this_thread::sleep_until(deadline.AtMost(kVerdictLook).NextLook());
    }
  }

  std::vector<EngineOutcome> Promote() {
    ExpectUndecided();
    std::vector<EngineOutcome> canaries = canaries_.Promote(version_);
    std::vector<EngineOutcome> others;
    const EngineOutcome* failed = FirstFailed(canaries);
    if (failed == nullptr && rest_) {
      others = Follow();
      failed = FirstFailed(others);
    }
    if (failed != nullptr) {
      canaries = WentBack(NamingEngine(failed->endpoint, failed->error->what()));
    } else {
      for (std::size_t i = 0; i < canaries.size(); ++i) {
        canaries[i].previous = taken_[i].previous;
        canaries[i].report = taken_[i].report;
      }
    }
    Decide();
    return InOrder(std::move(canaries), std::move(others));
  }

  std::vector<EngineOutcome> RollBack() {
    ExpectUndecided();
    std::vector<EngineOutcome> outcomes = canaries_.Revoke(version_);
    Decide();
    return outcomes;
  }

  void Cancel() {
    stop_.request_stop();
    if (rest_) rest_->Cancel();
  }

 private:
  // They take it all or none, for which each has to hold it staged.
  void CheckOthers(const Deadline& deadline) const {
    for (const std::string& engine : others_) {
      RpcClient client("engine", engine, keys_);
      const Json status = StatusOf(client, deadline);
      if (status.at("commit") == "staged") continue;
      Refuse(engine, "expected the commit policy staged, got " + status["commit"].get<std::string>());
    }
  }

  void Hold(const Deadline& deadline) {
    const ReloadRequest& reload = request_.reload;
    if (reload.publisher.empty()) return;
    held_.emplace(SplitEndpoints(reload.publisher), keys_, reload.version, reload.timeout + kToDecide, deadline);
    request_.reload.version = held_->version();
  }

  // That each can go back, and that there is something to try.
  void CheckCanaries(const Deadline& deadline) {
    const std::optional<Version>& wanted = request_.reload.version;
    auto client = clients_.begin();
    for (const std::string& canary : request_.canaries) {
      const Json status = StatusOf(*client++, deadline);
      if (!status.at("version").is_object()) Refuse(canary, "serves no version to go back to");
      const Version served = VersionFromJson(status["version"]);
      if (wanted && wanted->digest && served == *wanted) Refuse(canary, "serves " + served.ToString() + " already");
      const bool again = held_ && held_->AlsoHold(served, request_.reload.timeout + kToDecide, deadline);
      if (again) request_.reload.way_back = request_.reload.publisher;
      if (again || status.at("keeps_previous").get<bool>()) continue;
      Refuse(canary, "serves " + served.ToString() + " and has no way back to it: expected serve --keep-previous" +
                         (held_ ? ", or publisher " + request_.reload.publisher + " to keep it" : ""));
    }
  }

  void Take(const std::stop_token& stop) {
    const std::stop_callback cancel(stop, [this] { canaries_.Cancel(); });
    ReloadRequest reload = request_.reload;
    reload.all_or_none = false;
    reload.trial = reload.timeout + kToDecide;  // until all of them serve it
    reload.trace.clear();
    taken_ = canaries_.ReloadWeights(reload);
    const auto served = std::ranges::find(taken_, true, &EngineOutcome::ok);
    if (served != taken_.end()) version_ = served->version;
    try {
      ExpectTaken();
      if (stop.stop_requested()) throw Error(ErrorCode::kCancelled, "canary: it was given up");
      HoldTrial();
    } catch (...) {
      GiveBack();
      throw;
    }
  }

  void ExpectTaken() const {
    if (const EngineOutcome* failed = FirstFailed(taken_)) {
      throw Error(failed->error->code(), "canary: " + NamingEngine(failed->endpoint, failed->error->what()));
    }
    for (const EngineOutcome& each : taken_) {
      if (each.version == each.previous) Refuse(each.endpoint, "served " + version_->ToString() + " already");
      if (each.version == version_) continue;
      Refuse(each.endpoint, "serves " + each.version->ToString() + ", expected " + version_->ToString());
    }
  }

  // The trial lasts from now on, when all canaries serve the version; and it is kept until the others have taken it.
  void HoldTrial() {
    const Deadline deadline = Deadline::After(kCanaryCall);
    const Json params = {{"lineage", version_->lineage},
                         {"step", version_->step},
                         {"digest", version_->digest.ToHex()},
                         {"lease_ms", request_.trial.count()}};
    for (RpcClient& canary : clients_) canary.Call("hold_trial", params, deadline);
    if (held_) held_->Renew(request_.trial + request_.reload.timeout + kToDecide, deadline);
  }

  // Those that have, or may have, taken the version go back to what they served. They do so in their turn, also if they
  // are still taking it.
  void GiveBack() {
    for (const EngineOutcome& each : taken_) {
      if (!MayHaveTaken(each)) continue;
      const std::optional<Version> named = version_ ? version_ : request_.reload.version;
      const EngineOutcome back = Controller({each.endpoint}, key_options_).Revoke(named).front();
      if (!back.ok && each.ok) log::error("canary: {}", NamingEngine(back.endpoint, back.error->what()));
    }
  }

  // What was promoted elsewhere, or is on trial no more; nullopt: all of them wait.
  std::optional<bool> Verdict() {
    std::optional<bool> said;
    for (RpcClient& canary : clients_) {
      const Json trial = StatusOf(canary, Deadline::After(kCanaryCall).OrStop(stop_.get_token())).at("trial");
      const bool of_it = trial.is_object() && VersionFromJson(trial.at("version")) == *version_;
      const std::string state = of_it ? trial.at("state").get<std::string>() : "";
      if (state == "waiting") continue;
      if (state != "promoted") return false;
      said = true;
    }
    return said;
  }

  // All others take exactly the version, or none of them does.
  std::vector<EngineOutcome> Follow() {
    const std::stop_callback cancel(stop_.get_token(), [this] { rest_->Cancel(); });
    ReloadRequest reload = request_.reload;
    reload.version = version_;
    reload.all_or_none = true;
    reload.trace.clear();
    try {
      if (stop_.stop_requested()) throw Error(ErrorCode::kCancelled, "canary: the promotion was given up");
      return rest_->ReloadWeights(reload);
    } catch (const Error& error) {
      std::vector<EngineOutcome> outcomes;
      for (const std::string& engine : others_) outcomes.push_back({.endpoint = engine, .error = error});
      return outcomes;
    }
  }

  std::vector<EngineOutcome> WentBack(const std::string& why) {
    std::vector<EngineOutcome> outcomes = canaries_.Revoke(version_);
    for (EngineOutcome& outcome : outcomes) {
      if (!outcome.ok) continue;
      outcome.ok = false;
      outcome.error.emplace(ErrorCode::kCancelled, "went back, because not all engines took the version: " + why);
    }
    return outcomes;
  }

  std::vector<EngineOutcome> InOrder(std::vector<EngineOutcome> canaries, std::vector<EngineOutcome> others) const {
    std::vector<EngineOutcome> ordered;
    for (const std::string& engine : engines_) {
      for (std::vector<EngineOutcome>* const of : {&canaries, &others}) {
        const auto found = std::ranges::find(*of, engine, &EngineOutcome::endpoint);
        if (found != of->end()) ordered.push_back(std::move(*found));
      }
    }
    return ordered;
  }

  void ExpectUndecided() const {
    if (decided_) throw Error(ErrorCode::kFailedPrecondition, "canary: it was promoted or rolled back already");
  }

  void Decide() {
    decided_ = true;
    held_.reset();
  }

  const std::vector<std::string> engines_;
  const std::vector<std::string> others_;
  const KeyOptions key_options_;
  const Keys keys_;
  CanaryRequest request_;
  Controller canaries_;
  std::optional<Controller> rest_;   // nullopt: all engines are canaries
  std::list<RpcClient> clients_;     // of the canaries
  std::optional<HeldVersion> held_;  // nullopt: no publisher has the version
  std::vector<EngineOutcome> taken_;
  std::optional<Version> version_;
  std::stop_source stop_;
  bool decided_ = false;
};

CanaryReload::CanaryReload(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CanaryReload::CanaryReload(CanaryReload&&) noexcept = default;
CanaryReload::~CanaryReload() = default;
const Version& CanaryReload::version() const { return impl_->version(); }
const std::vector<EngineOutcome>& CanaryReload::canaries() const { return impl_->canaries(); }
const std::vector<std::string>& CanaryReload::others() const { return impl_->others(); }
std::optional<bool> CanaryReload::Await(std::chrono::milliseconds most) { return impl_->Await(most); }
std::vector<EngineOutcome> CanaryReload::Promote() { return impl_->Promote(); }
std::vector<EngineOutcome> CanaryReload::RollBack() { return impl_->RollBack(); }
void CanaryReload::Cancel() { impl_->Cancel(); }

CanaryReload Controller::Canary(const CanaryRequest& request) {
  const std::stop_token stop = BeginCall();
  return CanaryReload(std::make_unique<CanaryReload::Impl>(endpoints(), key_options(), request, stop));
}

}  // namespace layercast
