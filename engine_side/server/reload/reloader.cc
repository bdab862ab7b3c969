#include "engine_side/server/reload/reloader.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "engine_side/reload/commit/committer.h"
#include "engine_side/server/group/borrow.h"
#include "engine_side/server/group/reload_request.h"
#include "engine_side/server/reload/passed_over.h"
#include "engine_side/server/reload/rank_reports.h"
#include "engine_side/server/reload/sync_log.h"
#include "engine_side/server/traces/sync_trace.h"
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

}  // namespace

Reloader::Reloader(RankGroup& ranks, Generator& generator, AdapterRegistry& adapters, std::string default_pause_mode,
                   std::unique_ptr<OtlpSender> otlp)
    : ranks_(ranks),
      generator_(generator),
      adapters_(adapters),
      loads_(ranks, adapters),
      default_pause_mode_(std::move(default_pause_mode)),
      otlp_(std::move(otlp)) {}

Json Reloader::Reload(const Json& params, HeldReload* held) {
  const auto begin = Clock::now();
  const std::optional<Version> before = LastWhole().version;
  Json outcome = {{"ok", false},
                  {"version", nullptr},
                  {"previous", VersionToJson(before)},
                  {"report", nullptr},
                  {"error", nullptr}};
  Json of_adapters = Json::object();
  const std::string session = SessionName(ranks_.engine(), attempt_ + 1);
  Deadline deadline = Deadline::After(kDefaultTimeout);
  std::optional<PassedOver> passed_over;
  SyncTrace trace(params, session, otlp_.get());
  RankReload reload(ranks_, attempt_ + 1, trace);
  try {
    const PauseMode mode = PauseModeNamed(params.value("pause_mode", default_pause_mode_));
    deadline = Deadline::After(MillisecondsFrom(params, "timeout_ms", kDefaultTimeout));
    if (held != nullptr) ExpectCanBeHeld(ranks_.commit_policy());
    Enter("receiving", UnderWay{attempt_ + 1, begin});
    const Json staged = Stage(reload, params, held == nullptr, deadline);
    std::vector<FilledAdapter> adapters = FillAdaptersOrDrop(reload, staged, deadline);
    for (const FilledAdapter& each : adapters) of_adapters[each.adapter.name] = each.report;
    Enter("staged");
    if (IsGiven(params, "publisher")) {
      passed_over.emplace(publishers_, params["publisher"].get<std::string>(), ranks_.keys(), before, reload.version());
    }
    const Whole whole_before = LastWhole();
    Commit(reload, std::move(adapters), mode, held, deadline);
    KeepOrigin(params);
    Verify(reload, whole_before);
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
    if (IsGiven(params, "publisher")) {
      outcome["report"]["passed_over"] =
          outcome["ok"].get<bool>() ? passed_over->List(reload.version(), deadline) : Json();
    }
  }

  std::unique_lock lock(mutex_);
  state_ = torn_ ? "torn" : version_ ? "serving" : "loading";
  under_way_.reset();
  last_error_ = outcome["error"];
  last_report_ = outcome["report"];
  outcome["version"] = VersionToJson(version_);
  lock.unlock();
  if (outcome["ok"] == true) LogSync(outcome, params, session, Clock::now() - begin);
  if (TraceLane* const lane = trace.Lane("reload", TraceKind::kCall)) lane->Add(begin, Clock::now());
  trace.PutTogether(ranks_, own_endpoint_, params, outcome);
  return outcome;
}

Json Reloader::LoadAdapter(const Json& params, HeldReload* held) {
  Json outcome = {{"ok", false},        {"version", nullptr}, {"previous", nullptr},
                  {"adapter", nullptr}, {"report", nullptr},  {"error", nullptr}};
  const auto begin = Clock::now();
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
  if (outcome["ok"] == true) LogAdapterSync(outcome, params, Clock::now() - begin);
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
Json Reloader::Stage(RankReload& reload, const Json& params, bool prepares, Deadline deadline) {
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
    reload.Stage(request, prepares, deadline);
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
void Reloader::AwaitWord(RankReload& reload, HeldReload& held, HeldReload::Word next, Deadline deadline) {
  const TraceScope span(reload.trace().Lane("other engines", TraceKind::kWait));
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
    const TraceScope span(IsGiven(params, "adapters") ? reload.trace().Lane("adapters", TraceKind::kCall) : nullptr);
    return FillAdapters(reload, params, deadline);
  } catch (...) {
    reload.Drop();
    throw;
  }
}

// Commits what is staged. If that fails before any rank was told to commit, all ranks drop it.
void Reloader::Commit(RankReload& reload, std::vector<FilledAdapter> adapters, PauseMode mode, HeldReload* held,
                      Deadline deadline) {
  Clock::time_point asked;
  const std::function<Version()> on_ranks = [&] {
    if (TraceLane* const lane = reload.trace().Lane("sequences", TraceKind::kWait)) lane->Add(asked, Clock::now());
    const TraceScope pause(reload.trace().Lane("pause", TraceKind::kCall));
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
    asked = Clock::now();
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
  if (on_served_) on_served_();
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

}  // namespace layercast
