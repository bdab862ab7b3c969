// A version on trial: an engine that takes one as a canary goes back by itself to what it served before, unless
// somebody promotes the version in time (RPC.md, "A version on trial"). Used by the engine's service.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "layercast/error.h"
#include "layercast/version.h"
#include "src/base/deadline.h"
#include "src/control/json_forms.h"

namespace layercast {

// Resource. All but Status is for the reloading thread, on which versions come and go; Status is thread-safe.
class Trial {
 public:
  // What a trial needs of the engine that it is on. Value.
  struct Engine {
    std::function<Json(const Json& params)> reload;    // does `reload_weights`, and returns its result
    std::function<std::optional<Version>()> served;    // nullopt: torn
    std::function<std::optional<Version>()> previous;  // that the ranks keep; nullopt: none
    bool keeps_previous = false;                       // serve --keep-previous
  };
  explicit Trial(Engine engine) : engine_(std::move(engine)) {}

  // Does `reload_weights`. With `trial_ms` the version that it brings is on trial for so long. Throws
  // kFailedPrecondition, naming what is missing, if there is no way back, or another version is on trial.
  Json Reload(const Json& params);
  // Each is of the version that `params` name ("lineage", "step", "digest"), or of whichever is on trial. They throw
  // kFailedPrecondition, with what became of it, if it is not on trial any more.
  Json Promote(const Json& params);
  Json Hold(const Json& params);    // for `lease_ms` from now on
  Json Revoke(const Json& params);  // goes back now, also from a version that was promoted; as `reload_weights`

  // Says that what is served may have changed: a version that another has replaced is on trial no more.
  void Note();
  // When the engine is to go back by itself; never, if nothing is on trial.
  Deadline due() const;
  // Goes back if that is due. If it fails, it becomes due again.
  void GoBackIfDue();

  // {"version", "before", "state", "left_ms", "error"}; null before the first trial.
  Json Status() const;

 private:
  enum class State { kWaiting, kPromoted, kGoingBack, kRolledBack, kSuperseded };
  struct OnTrial {
    Version version;
    Version before;
    Json way_back;  // params of a reload of `before` from a publisher; null: there is none
    Json pause_mode;
    State state = State::kWaiting;
    Deadline ends;
    std::optional<Error> error{};  // why it could not go back yet
  };

  static const char* Name(State state);
  bool IsOpen() const;
  OnTrial& Expect(const std::string& call, const Json& params);
  Json WayBack(const Json& params, const Version& before) const;
  Json GoBack();
  Json ReloadBefore();
  Json Failed(const Error& why) const;
  void Set(State state);

  const Engine engine_;
  mutable std::mutex mutex_;      // of what Status reads; the reloading thread alone writes
  std::optional<OnTrial> trial_;  // the last one; written under mutex_
};

}  // namespace layercast
