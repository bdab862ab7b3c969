#include "engine_side/server/reload/trial.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "engine_side/server/group/reload_request.h"
#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/run_at.h"

namespace layercast {
namespace {

constexpr std::chrono::seconds kAgain{5};  // after it could not go back
constexpr std::chrono::milliseconds kToGoBack{300'000};

// Whether `params` name the version, or none.
bool IsCalled(const Json& params, const Version& version) {
  if (IsGiven(params, "lineage") && params["lineage"] != version.lineage) return false;
  if (IsGiven(params, "step") && params["step"] != version.step) return false;
  return !IsGiven(params, "digest") || params["digest"] == version.digest.ToHex();
}

}  // namespace

const char* Trial::Name(State state) {
  switch (state) {
    case State::kWaiting: return "waiting";
    case State::kPromoted: return "promoted";
    case State::kGoingBack: return "going_back";
    case State::kRolledBack: return "rolled_back";
    case State::kSuperseded: return "superseded";
  }
  return "";
}

Json Trial::Reload(const Json& params) {
  if (!IsGiven(params, "trial_ms")) return engine_.reload(params);
  const std::chrono::milliseconds lease = MillisecondsFrom(params, "trial_ms", {});
  Note();
  if (IsOpen()) {
    throw Error(ErrorCode::kFailedPrecondition, "a trial: " + trial_->version.ToString() +
                                                    " is on trial already: promote_weights or revoke_weights end that");
  }
  const std::optional<Version> before = engine_.served();
  if (!before)
    throw Error(ErrorCode::kFailedPrecondition, "a trial: this engine is torn, and has nothing to go back to");
  if (IsGiven(params, "adapters")) {  // what their names meant before is not kept
    throw Error(ErrorCode::kUnsupported, "a trial is of the base alone: expected no adapters with it");
  }
  const Json way_back = WayBack(params, *before);
  Json outcome = engine_.reload(params);
  const std::optional<Version> now = engine_.served();
  outcome["trial"] = nullptr;
  if (!outcome["ok"].get<bool>() || !now || *now == *before) return outcome;
  {
    const std::lock_guard lock(mutex_);
    trial_ = OnTrial{.version = *now,
                     .before = *before,
                     .way_back = way_back,
                     .pause_mode = params.value("pause_mode", Json()),
                     .ends = Deadline::After(lease)};
  }
  outcome["trial"] = Status();
  return outcome;
}

// Throws if there is none but what the ranks keep, and they keep nothing.
Json Trial::WayBack(const Json& params, const Version& before) const {
  if (IsGiven(params, "way_back")) {
    return {{"publisher", params["way_back"]},
            {"lineage", before.lineage},
            {"step", before.step},
            {"digest", before.digest.ToHex()}};
  }
  if (engine_.keeps_previous) return nullptr;
  throw Error(ErrorCode::kFailedPrecondition,
              "a trial needs a way back to " + before.ToString() +
                  ": expected serve --keep-previous, or a publisher that keeps it (way_back)");
}

Json Trial::Promote(const Json& params) {
  OnTrial& trial = Expect("promote_weights", params);
  if (trial.state != State::kPromoted) log::info("{} was promoted", trial.version.ToString());
  Set(State::kPromoted);
  return {{"version", VersionToJson(trial.version)}};
}

Json Trial::Hold(const Json& params) {
  OnTrial& trial = Expect("hold_trial", params);
  const std::chrono::milliseconds lease = MillisecondsFrom(params, "lease_ms", {});
  const std::lock_guard lock(mutex_);
  trial.ends = Deadline::After(lease);
  return Json::object();
}

// Once it has gone back, that is not done a second time.
Json Trial::Revoke(const Json& params) {
  Note();
  const bool done = trial_ && IsCalled(params, trial_->version) && trial_->state == State::kRolledBack;
  if (!done) {
    Expect("revoke_weights", params);
    return GoBack();
  }
  return {{"ok", true},
          {"version", VersionToJson(engine_.served())},
          {"previous", VersionToJson(trial_->version)},
          {"report", nullptr},
          {"error", nullptr}};
}

// The trial, of which the version is still served, whatever was said of it.
Trial::OnTrial& Trial::Expect(const std::string& call, const Json& params) {
  Note();
  const auto refuse = [&](const std::string& why) -> Error {
    return {ErrorCode::kFailedPrecondition, call + ": " + why};
  };
  if (!trial_) throw refuse("no version is on trial here");
  const std::string became = trial_->version.ToString() + " was on trial last, and is " + Name(trial_->state);
  if (!IsCalled(params, trial_->version)) throw refuse("the version that it names is not on trial; " + became);
  if (trial_->state == State::kRolledBack || trial_->state == State::kSuperseded) {
    throw refuse("no version is on trial any more; " + became);
  }
  return *trial_;
}

bool Trial::IsOpen() const {
  return trial_ && (trial_->state == State::kWaiting || trial_->state == State::kGoingBack);
}

// A torn engine may still go back.
void Trial::Note() {
  const std::optional<Version> served = engine_.served();
  if (!trial_ || !served || *served == trial_->version) return;
  if (trial_->state == State::kRolledBack || trial_->state == State::kSuperseded) return;
  Set(*served == trial_->before ? State::kRolledBack : State::kSuperseded);
}

Deadline Trial::due() const { return IsOpen() ? trial_->ends : Deadline::After(std::chrono::hours(1)); }

void Trial::GoBackIfDue() {
  Note();
  if (!IsOpen() || !trial_->ends.Passed()) return;
  log::warn("{} was on trial, and nobody has promoted it in time: the engine goes back to {}",
            trial_->version.ToString(), trial_->before.ToString());
  const Json outcome = GoBack();
  if (!outcome["ok"].get<bool>()) log::error("going back: {}", outcome["error"].value("message", ""));
}

Json Trial::GoBack() {
  Set(State::kGoingBack);
  Json outcome;
  try {
    outcome = ReloadBefore();
  } catch (const std::exception& error) {  // it sleeps, say
    outcome = Failed(ErrorOfCall(error));
  }
  Note();
  if (trial_->state == State::kRolledBack) return outcome;
  const std::lock_guard lock(mutex_);
  trial_->ends = Deadline::After(kAgain);
  if (outcome["error"].is_object()) trial_->error = ErrorFromJson(outcome["error"]);
  return outcome;
}

// From the ranks' memory, if they still have it, else from the publisher.
Json Trial::ReloadBefore() {
  Json params = {{"timeout_ms", kToGoBack.count()}};
  if (!trial_->pause_mode.is_null()) params["pause_mode"] = trial_->pause_mode;
  std::optional<Json> outcome;
  if (engine_.previous() == trial_->before) {
    Json kept = params;
    kept["previous"] = true;
    outcome = engine_.reload(kept);
    if ((*outcome)["ok"].get<bool>() || trial_->way_back.is_null()) return *outcome;
  }
  if (!trial_->way_back.is_null()) {
    params.update(trial_->way_back);
    return engine_.reload(params);
  }
  return Failed({ErrorCode::kFailedPrecondition, "this engine has lost its copy of " + trial_->before.ToString() +
                                                     ", and was told of no publisher that keeps it"});
}

Json Trial::Failed(const Error& why) const {
  return {{"ok", false},
          {"version", VersionToJson(engine_.served())},
          {"previous", nullptr},
          {"report", nullptr},
          {"error", ErrorToJson(why)}};
}

void Trial::Set(State state) {
  const std::lock_guard lock(mutex_);
  trial_->state = state;
  if (state == State::kRolledBack) trial_->error.reset();
}

Json Trial::Status() const {
  const std::lock_guard lock(mutex_);
  if (!trial_) return nullptr;
  const bool open = IsOpen();
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(trial_->ends.at() - Deadline::Clock::now());
  return {{"version", VersionToJson(trial_->version)},
          {"before", VersionToJson(trial_->before)},
          {"state", Name(trial_->state)},
          {"left_ms", open ? Json(std::max(left.count(), decltype(left.count()){0})) : Json()},
          {"error", trial_->error ? ErrorToJson(*trial_->error) : Json()}};
}

}  // namespace layercast
