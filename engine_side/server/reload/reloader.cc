#include "engine_side/server/reload/reloader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine_side/reload/commit/committer.h"
#include "engine_side/server/group/borrow.h"
#include "engine_side/server/group/reload_request.h"
#include "engine_side/server/reload/rank_reports.h"
#include "engine_side/server/reload/sync_log.h"
#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/utf8.h"
#include "src/control/answer_time.h"
#include "src/control/progress_forms.h"
#include "src/session/link/session_name.h"

namespace layercast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDefaultTimeout{300'000};

// A reload can be held only if all its bytes are received before anything is overwritten.
void ExpectCanBeHeld(CommitPolicy policy) {
  if (!WritesLayers(policy)) return;
  throw Error(ErrorCode::kFailedPrecondition, "stage_weights: expected the commit policy staged, this engine has " +
                                                  std::string(CommitPolicyName(policy)) +
                                                  ", which receives while it commits");
}

std::string NameOf(const std::optional<Version>& version) { return version ? version->ToString() : "no version"; }

}  // namespace

Reloader::Reloader(RankGroup& ranks, Generator& generator, AdapterRegistry& adapters, std::string default_pause_mode)
    : ranks_(ranks),
      generator_(generator),
      adapters_(adapters),
      loads_(ranks, adapters),
      default_pause_mode_(std::move(default_pause_mode)) {}

Json Reloader::Reload(const Json& params, HeldReload* held) {
  const auto begin = Clock::now();
  Json outcome = {{"ok", false},
                  {"version", nullptr},
                  {"previous", VersionToJson(LastWhole().version)},
                  {"report", nullptr},
                  {"error", nullptr}};
  Json of_adapters = Json::object();
  RankReload reload(ranks_, attempt_ + 1);
  const std::string session = SessionName(ranks_.engine(), attempt_ + 1);
  try {
    const PauseMode mode = PauseModeNamed(params.value("pause_mode", default_pause_mode_));
    const Deadline deadline = Deadline::After(MillisecondsFrom(params, "timeout_ms", kDefaultTimeout));
    if (held != nullptr) ExpectCanBeHeld(ranks_.commit_policy());
    Enter("receiving", UnderWay{attempt_ + 1, begin});
    const Json staged = Stage(reload, params, deadline);
    std::vector<FilledAdapter> adapters = FillAdaptersOrDrop(reload, staged, deadline);
    for (const FilledAdapter& each : adapters) of_adapters[each.adapter.name] = each.report;
    Enter("staged");
    const Whole before = LastWhole();
    Commit(reload, std::move(adapters), mode, held, deadline);
    KeepOrigin(params);
    Verify(reload, before);
    outcome["ok"] = true;
  } catch (const std::exception& error) {
    const Error why = ranks_.ended() ? Error(ErrorCode::kCancelled, "the engine was ended") : ErrorOfCall(error);
    outcome["error"] = ErrorToJson(why);
    if (ServesOrIsTorn()) {  // else it is the first load, and its caller reports it
      LogFailedSync(why, params, session, Clock::now() - begin);
      ranks_.RestartIfLost();
    }
  }
  outcome["report"] = reload.report();
  if (reload.report().is_object()) {
    outcome["report"]["total_ms"] = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    if (!of_adapters.empty()) outcome["report"]["adapters"] = std::move(of_adapters);
  }

  std::unique_lock lock(mutex_);
  state_ = torn_ ? "torn" : version_ ? "serving" : "loading";
  under_way_.reset();
  last_error_ = outcome["error"];
  last_report_ = outcome["report"];
  outcome["version"] = VersionToJson(version_);
  lock.unlock();
  if (outcome["ok"] == true) LogSync(outcome, params, session, Clock::now() - begin);
  return outcome;
}

Json Reloader::LoadAdapter(const Json& params, HeldReload* held) {
  Json outcome = {{"ok", false},        {"version", nullptr}, {"previous", nullptr},
                  {"adapter", nullptr}, {"report", nullptr},  {"error", nullptr}};
  const std::string name = params.value("name", std::string());
  outcome["version"] = outcome["previous"] = VersionToJson(adapters_.VersionOf(name));
  try {
    const Deadline deadline = Deadline::After(MillisecondsFrom(params, "timeout_ms", kDefaultTimeout));
    FilledAdapter filled = loads_.Fill(params, version(), deadline);
    outcome["report"] = filled.report;
    loads_.CheckBeforeName();
    if (held != nullptr) {
      AwaitWord(filled, *held, HeldReload::Word::kPrepare, deadline);
      AwaitWord(filled, *held, HeldReload::Word::kCommit, Deadline::After(std::chrono::milliseconds::max()));
    }
    loads_.Name(std::move(filled));
    outcome["ok"] = true;
  } catch (const std::exception& error) {
    const Error why = ranks_.ended() ? Error(ErrorCode::kCancelled, "the engine was ended") : ErrorOfCall(error);
    log::error("adapter {}: {}", name, why.what());
    outcome["error"] = ErrorToJson(why);
    ranks_.RestartIfLost();
  }
  outcome["version"] = VersionToJson(adapters_.VersionOf(name));
  for (const Json& entry : adapters_.List()) {
    if (entry["name"] == name && entry["state"] == "served") outcome["adapter"] = entry;
  }
  return outcome;
}

// Waits until the controller says that the other engines have filled a slot too.
void Reloader::AwaitWord(const FilledAdapter& filled, HeldReload& held, HeldReload::Word next, Deadline deadline) {
  held.Await(next,
             {{"ok", true},
              {"version", VersionToJson(adapters_.VersionOf(filled.adapter.name))},
              {"staged", VersionToJson(filled.adapter.version)},
              {"report", filled.report},
              {"error", nullptr}},
             deadline);
}

// Returns the params with what they did not say: the path that was loaded last, or where another engine lends.
Json Reloader::Stage(RankReload& reload, const Json& params, Deadline deadline) {
  Json request = params;
  CheckOneSource(request);
  const bool path = IsGiven(request, "weights_path");
  const bool engine = IsGiven(request, "engine");
  const bool previous = request.value("previous", false);
  if (previous) request["kept"] = Previous();
  FindInStore(request);
  const bool other = IsGiven(request, "publisher") || IsGiven(request, "store") || IsDummy(request);
  if (!path && !engine && !other && !previous) {
    if (origin_.is_null())
      throw Error(ErrorCode::kFailedPrecondition, "there is no checkpoint to re-read: none was loaded from a path");
    request.update(origin_);
  }
  if (engine) {
    const Deadline or_end = deadline.OrStop(ranks_.ending());
    const Borrower self{own_endpoint_, ranks_.layout(), IsGiven(request, "adapters"), ranks_.keys()};
    request["lent"] = Borrow(request["engine"].get<std::string>(), self, or_end);
  }
  ++attempt_;  // the ranks hear of it
  try {
    reload.Stage(request, deadline);
  } catch (const Error& error) {
    if (!engine) throw;
    // Ranks know the lender's ranks alone, at addresses that nobody has named.
    throw Error(error.code(), "taking what engine " + request["engine"].get<std::string>() + " lends: " + error.what());
  }
  return request;
}

void Reloader::KeepOrigin(const Json& params) {
  if (!IsGiven(params, "weights_path") || params.value("partial", false)) return;
  origin_ = Json::object();
  for (const char* field : {"weights_path", "load_format", "secondary_weights", "is_checkpoint_format"}) {
    if (params.contains(field)) origin_[field] = params[field];
  }
}

// Waits until the controller says that the other engines are as far as this one.
void Reloader::AwaitWord(const RankReload& reload, HeldReload& held, HeldReload::Word next, Deadline deadline) {
  held.Await(next,
             {{"ok", true},
              {"version", VersionToJson(version())},
              {"staged", reload.report().at("version")},
              {"report", reload.report()},
              {"error", nullptr}},
             deadline);
}

// The adapters that come with the base, in slots without names. Refuses a base that adapters which stay were not
// trained on.
std::vector<FilledAdapter> Reloader::FillAdapters(const RankReload& reload, const Json& params, Deadline deadline) {
  std::vector<FilledAdapter> filled;
  if (IsGiven(params, "adapters")) filled = loads_.FillAll(params, reload.version(), deadline);
  if (params.value("keep_adapters", false)) return filled;
  std::string others;
  for (const std::string& name : adapters_.NotOf(reload.version())) {
    const auto is_it = [&](const FilledAdapter& each) { return each.adapter.name == name; };
    if (std::ranges::none_of(filled, is_it)) others += (others.empty() ? "" : ", ") + Quote(name);
  }
  if (others.empty()) return filled;
  throw Error(ErrorCode::kFailedPrecondition, reload.version().ToString() +
                                                  " is not the base that adapters say they "
                                                  "were trained on: " +
                                                  others +
                                                  " (unload them, bring them along, or "
                                                  "say keep_adapters)");
}

std::vector<FilledAdapter> Reloader::FillAdaptersOrDrop(RankReload& reload, const Json& params, Deadline deadline) {
  try {
    return FillAdapters(reload, params, deadline);
  } catch (...) {
    reload.Drop();
    throw;
  }
}

// Commits what is staged. If that fails before any rank was told to commit, all ranks drop it.
void Reloader::Commit(RankReload& reload, std::vector<FilledAdapter> adapters, PauseMode mode, HeldReload* held,
                      Deadline deadline) {
  const std::function<Version()> on_ranks = [&] {
    Enter("committing");
    reload.Prepare();
    // Once it has said that it is ready, it waits for as long as its lease is renewed: others rely on its word.
    if (held != nullptr) {
      AwaitWord(reload, *held, HeldReload::Word::kCommit, Deadline::After(std::chrono::milliseconds::max()));
    }
    Version version = CommitOnRanks(reload, deadline);
    for (FilledAdapter& each : std::exchange(adapters, {})) loads_.Name(std::move(each), true);  // while no pass runs
    return version;
  };
  try {
    if (held != nullptr) AwaitWord(reload, *held, HeldReload::Word::kPrepare, deadline);
    generator_.Commit(mode, on_ranks, deadline);
  } catch (...) {
    reload.Drop();
    throw;
  }
}

Version Reloader::CommitOnRanks(RankReload& reload, Deadline deadline) {
  const std::optional<Version> before = version();
  try {
    reload.Commit(ServedDigests(), before && before != reload.version(), deadline);
  } catch (const Error& error) {
    if (reload.torn()) {
      Tear(LastWhole(), reload.version(), error.what());
    } else {
      ServeOldVersionAgain();
    }
    throw;
  }
  Serve(before, reload.version(), reload.Digests());
  return reload.version();
}

// Reads the served bytes back, which completes the reload's report.
void Reloader::Verify(RankReload& reload, const Whole& before) {
  try {
    reload.Verify();
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCorrupt) {  // the served bytes are no whole version
      Tear(before, reload.version(), error.what());
    }
    throw;
  }
  const std::lock_guard lock(mutex_);
  rank_digests_ = reload.Digests();
}

std::vector<std::string> Reloader::ServedDigests() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::string> digests;
  for (const Json& rank : rank_digests_) digests.push_back(rank.at("served_digest").get<std::string>());
  return digests;
}

// Until the first version is there, whatever is done is loading it.
void Reloader::Enter(const std::string& state, const std::optional<UnderWay>& begun) {
  const std::lock_guard lock(mutex_);
  if (version_ || torn_) state_ = state;
  if (begun) under_way_ = begun;
}

// Moves the version label, but only from the version on which the commit began. The digests move with it, so that they
// never are of another version.
void Reloader::Serve(const std::optional<Version>& expected, const Version& version, Json digests) {
  const std::lock_guard lock(mutex_);
  if (version_ != expected) {
    throw Error(ErrorCode::kInternal, "the served version changed while " + version.ToString() +
                                          " was committed: expected " + NameOf(expected) + ", got " + NameOf(version_));
  }
  if (ranks_.keeps_previous() && version_ && version_ != version) previous_ = Whole{version_, rank_digests_};
  version_ = version;
  rank_digests_ = std::move(digests);
  torn_.reset();
  lost_ = false;
}

// What the ranks are asked to go back to: {"version", "served_digests"}. A rank that has other bytes, or none since it
// was started anew, refuses.
Json Reloader::Previous() const {
  const std::lock_guard lock(mutex_);
  if (!ranks_.keeps_previous()) {
    throw Error(ErrorCode::kFailedPrecondition,
                "this engine keeps no previous version: expected serve --keep-previous");
  }
  if (!previous_) {
    throw Error(ErrorCode::kFailedPrecondition, "there is no previous version yet: this engine serves its first one");
  }
  Json digests = Json::array();
  for (const Json& rank : previous_->digests) digests.push_back(rank.at("served_digest"));
  return {{"version", VersionToJson(previous_->version)}, {"served_digests", std::move(digests)}};
}

bool Reloader::ServesOrIsTorn() const {
  const std::lock_guard lock(mutex_);
  return version_ || torn_;
}

Reloader::Whole Reloader::LastWhole() const {
  const std::lock_guard lock(mutex_);
  return {torn_ ? torn_->from : version_, rank_digests_};
}

void Reloader::Tear(const Whole& from, const Version& to, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (lost_) return;  // which says more
  torn_ = NotWhole{from.version, to};
  previous_.reset();
  version_.reset();
  rank_digests_ = from.digests;
  generator_.SetTorn("between " + NameOf(from.version) + " and " + to.ToString() +
                     ", and answers nothing until a whole version lands: " + why);
}

void Reloader::LoseWeights(const std::string& cause) {
  const std::lock_guard lock(mutex_);
  adapters_.Forget("its memory went when " + cause);
  if (!version_ && !torn_) return;  // nothing was served yet
  lost_ = true;
  previous_.reset();
  torn_ = NotWhole{torn_ ? torn_->from : version_, std::nullopt};
  version_.reset();
  if (state_ == "serving") state_ = "torn";
  generator_.SetTorn("since " + cause + ", and " + NameOf(torn_->from) +
                     " with its memory: it answers nothing until a whole version lands");
}

// The ranks serve the old version whole. If the engine was torn before, it no longer is.
void Reloader::ServeOldVersionAgain() {
  const std::lock_guard lock(mutex_);
  if (!torn_) return;
  version_ = torn_->from;
  torn_.reset();
  lost_ = false;
  generator_.SetTorn({});
}

// How far all ranks have come. What a rank last said may be of an earlier reload.
Json Reloader::Progress(const UnderWay& reload, const std::vector<Json>& of_ranks) {
  std::vector<ReloadProgress> ranks;
  for (const Json& rank : of_ranks) {
    const bool of_it = rank.is_object() && rank.value("attempt", std::uint64_t{0}) == reload.attempt;
    ranks.push_back(of_it ? ProgressFromJson(rank) : ReloadProgress());
  }
  Json progress = EngineProgressToJson(ranks);
  progress["elapsed_ms"] = std::chrono::duration<double, std::milli>(Clock::now() - reload.begin).count();
  return progress;
}

Json Reloader::Status() const {
  const std::vector<int> pids = ranks_.pids();
  const std::vector<Json> progress = ranks_.progress();
  const std::lock_guard lock(mutex_);
  Json ranks = rank_digests_;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank]["pid"] == pids[rank]) continue;
    ranks[rank]["pid"] = pids[rank];  // started anew over the same memory: its buffers have moved
    ranks[rank]["buffers_digest"] = nullptr;
  }
  Json channel = nullptr;
  if (last_report_.is_object() && IsDataChannel(last_report_["channel"])) channel = last_report_["channel"];
  Json torn = nullptr;
  if (torn_) torn = {{"from", VersionToJson(torn_->from)}, {"to", VersionToJson(torn_->to)}};
  return {{"state", state_},
          {"version", VersionToJson(version_)},
          {"progress", under_way_ ? Progress(*under_way_, progress) : Json()},
          {"torn", torn},
          {"previous", previous_ ? VersionToJson(previous_->version) : Json()},
          {"commit", CommitPolicyName(ranks_.commit_policy())},
          {"ranks", std::move(ranks)},
          {"channel", channel},
          {"adapters", adapters_.List()},
          {"last_report", last_report_},
          {"last_error", last_error_}};
}

std::optional<Version> Reloader::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

}  // namespace layercast
