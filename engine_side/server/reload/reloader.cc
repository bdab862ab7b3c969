#include "engine_side/server/reload/reloader.h"

#include <chrono>
#include <utility>

#include "engine_side/server/group/borrow.h"
#include "engine_side/server/group/reload_request.h"
#include "engine_side/server/reload/rank_channels.h"
#include "layercast/error.h"
#include "src/base/log.h"
#include "src/control/answer_time.h"
#include "src/control/progress_forms.h"

namespace layercast {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kDefaultTimeout{300'000};
constexpr std::chrono::milliseconds kCommitTimeout{120'000};

// A reload can be held only if all its bytes are received before anything is overwritten.
void ExpectCanBeHeld(CommitPolicy policy) {
  if (policy == CommitPolicy::kStaged) return;
  throw Error(ErrorCode::kFailedPrecondition, "stage_weights: expected the commit policy staged, this engine has " +
                                                  std::string(CommitPolicyName(policy)) +
                                                  ", which receives while it commits");
}

// Whether no rank got far enough to know what was to be loaded.
bool NothingBegan(const Json& report) {
  return VersionFromJson(report.at("version")) == Version() && report.at("bytes_total") == 0;
}

std::string NameOf(const std::optional<Version>& version) { return version ? version->ToString() : "no version"; }

}  // namespace

Reloader::Reloader(RankGroup& ranks, Generator& generator, std::string default_pause_mode)
    : ranks_(ranks), generator_(generator), default_pause_mode_(std::move(default_pause_mode)), commit_(ranks) {}

Json Reloader::Reload(const Json& params, HeldReload* held) {
  const auto begin = Clock::now();
  Json outcome = {{"ok", false},
                  {"version", nullptr},
                  {"previous", VersionToJson(LastWhole().version)},
                  {"report", nullptr},
                  {"error", nullptr}};
  report_ = nullptr;
  reports_.clear();
  try {
    const PauseMode mode = PauseModeNamed(params.value("pause_mode", default_pause_mode_));
    const Deadline deadline = Deadline::After(MillisecondsFrom(params, "timeout_ms", kDefaultTimeout));
    if (held != nullptr) ExpectCanBeHeld(ranks_.commit_policy());
    Enter("receiving", UnderWay{attempt_ + 1, begin});
    Stage(params, deadline);
    Enter("staged");
    const Whole before = LastWhole();
    Commit(mode, held, deadline);
    KeepOrigin(params);
    report_ = Verify(before);
    outcome["ok"] = true;
  } catch (const std::exception& error) {
    const Error why = ranks_.ended() ? Error(ErrorCode::kCancelled, "the engine was ended") : ErrorOfCall(error);
    outcome["error"] = ErrorToJson(why);
    if (ServesOrIsTorn()) {  // else it is the first load, and its caller reports it
      log::error("reload: {}", why.what());
      ranks_.RestartIfLost();
    }
  }
  if (report_.is_object()) {
    report_["total_ms"] = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
  }

  const std::lock_guard lock(mutex_);
  state_ = torn_ ? "torn" : version_ ? "serving" : "loading";
  under_way_.reset();
  last_error_ = outcome["error"];
  last_report_ = report_;
  outcome["version"] = VersionToJson(version_);
  outcome["report"] = report_;
  return outcome;
}

void Reloader::Stage(const Json& params, Deadline deadline) {
  Json request = params;
  CheckOneSource(request);
  const bool path = IsGiven(request, "weights_path");
  const bool engine = IsGiven(request, "engine");
  if (!path && !engine && !IsGiven(request, "publisher") && !IsDummy(request)) {
    if (origin_.is_null())
      throw Error(ErrorCode::kFailedPrecondition, "there is no checkpoint to re-read: none was loaded from a path");
    request.update(origin_);
  }
  if (engine) {
    const Deadline or_end = deadline.OrStop(ranks_.ending());
    request["lent"] = Borrow(request["engine"].get<std::string>(), own_endpoint_, ranks_.layout(), or_end);
  }
  request["attempt"] = ++attempt_;
  request["timeout_ms"] = TimeWithin(deadline.Remaining()).count();
  own_versions_ = RanksNameTheirOwn(request);
  RankReports staged = AskForReports(ranks_, "stage", request, deadline, attempt_);
  ExpectOneVersion(staged, own_versions_);
  report_ = MergeReports(staged.reports);
  reports_ = std::move(staged.reports);
  if (staged.error) {
    if (NothingBegan(report_)) report_ = nullptr;
    DropStaged();
    if (!engine) throw Error(*staged.error);
    // Ranks know the lender's ranks alone, at addresses that nobody has named.
    throw Error(staged.error->code(),
                "taking what engine " + request["engine"].get<std::string>() + " lends: " + staged.error->what());
  }
}

void Reloader::KeepOrigin(const Json& params) {
  if (!IsGiven(params, "weights_path") || params.value("partial", false)) return;
  origin_ = Json::object();
  for (const char* field : {"weights_path", "load_format", "secondary_weights", "is_checkpoint_format"}) {
    if (params.contains(field)) origin_[field] = params[field];
  }
}

// A rank that is still at work on what is staged, for instance because it waits for a publisher, gives that up first.
void Reloader::DropStaged() {
  ranks_.Cancel(attempt_);
  try {
    ranks_.Call("abort", Json::object(), Deadline::After(kCommitTimeout));
  } catch (const Error&) {  // a rank that is gone has nothing staged
  }
}

// Waits until the controller says that the other engines are as far as this one.
void Reloader::AwaitWord(HeldReload& held, HeldReload::Word next, Deadline deadline) {
  held.Await(next,
             {{"ok", true},
              {"version", VersionToJson(version())},
              {"staged", report_.at("version")},
              {"report", report_},
              {"error", nullptr}},
             deadline);
}

// Commits what is staged. If that fails before any rank was told to commit, all ranks drop it.
void Reloader::Commit(PauseMode mode, HeldReload* held, Deadline deadline) {
  bool begun = false;
  const std::function<Version()> on_ranks = [this, held, deadline, &begun] {
    Enter("committing");
    ranks_.Call("prepare", Json::object(), Deadline::After(kCommitTimeout));  // any rank may still refuse
    // Once it has said that it is ready, it waits for as long as its lease is renewed: others rely on its word.
    if (held != nullptr) AwaitWord(*held, HeldReload::Word::kCommit, Deadline::After(std::chrono::milliseconds::max()));
    begun = true;
    return CommitOnRanks(deadline);
  };
  try {
    if (held != nullptr) AwaitWord(*held, HeldReload::Word::kPrepare, deadline);
    generator_.Commit(mode, on_ranks, deadline);
  } catch (...) {
    if (!begun) DropStaged();
    throw;
  }
}

Version Reloader::CommitOnRanks(Deadline deadline) {
  const std::optional<Version> before = version();
  const Json staged = report_.at("version");
  RankCommitOutcome outcome = commit_.Run(attempt_, own_versions_, ServedDigests(), deadline);
  committed_by_ = ranks_.generation();
  if (!outcome.ranks.error) KeepWhatWasStaged(outcome.ranks.reports);
  if (!outcome.ranks.reports.empty()) report_ = MergeReports(outcome.ranks.reports);
  if (VersionFromJson(report_.at("version")) == Version()) report_["version"] = staged;  // all ranks are lost
  const Version version = VersionFromJson(report_.at("version"));
  if (outcome.torn) Tear(LastWhole(), version, outcome.ranks.error->what());
  if (outcome.ranks.error) {
    if (!outcome.torn) ServeOldVersionAgain();
    throw Error(*outcome.ranks.error);
  }
  reports_ = std::move(outcome.ranks.reports);
  Serve(before, version);
  return version;
}

// Reads the served bytes back. Returns the reload's report.
Json Reloader::Verify(const Whole& before) {
  try {
    ReadBack(Deadline::After(kCommitTimeout));
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCorrupt) {  // the served bytes are no whole version
      Tear(before, VersionFromJson(report_.at("version")), error.what());
    }
    throw;
  }
  Json report = MergeReports(reports_);
  Json digests = RankDigests();
  report["ranks"] = digests;
  const std::lock_guard lock(mutex_);
  rank_digests_ = std::move(digests);
  return report;
}

// Ranks that were started anew since the commit know nothing of it, whoever has started them. So what their memory
// holds is compared with what was reported then.
void Reloader::ReadBack(Deadline deadline) {
  try {
    std::vector<Json> verified = ranks_.Call("verify", Json::object(), deadline);
    KeepWhatWasStaged(verified);
    reports_ = std::move(verified);
    return;
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCorrupt) throw;
    ranks_.RestartIfLost();
    if (ranks_.generation() == committed_by_ || !ranks_.weights_outlive_ranks()) throw;
    log::warn("verifying: {}", error.what());
  }
  const std::vector<Json> digests = ranks_.Call("digests", Json::object(), deadline);
  for (std::size_t rank = 0; rank < digests.size(); ++rank) {
    const Json& expected = reports_[rank].at("served_digest");
    const Json& got = digests[rank].at("served_digest");
    if (got != expected) {
      throw Error(ErrorCode::kCorrupt, "rank " + std::to_string(rank) +
                                           " was started anew after the commit, and serves other bytes: digest "
                                           "expected " +
                                           expected.get<std::string>() + ", got " + got.get<std::string>());
    }
    reports_[rank].update(digests[rank]);
  }
}

// What reports_ say of each rank, for the status.
Json Reloader::RankDigests() const {
  Json digests = Json::array();
  for (std::size_t rank = 0; rank < reports_.size(); ++rank) {
    digests.push_back({{"rank", rank},
                       {"pid", reports_[rank].at("pid")},
                       {"bytes", reports_[rank]["bytes"]},
                       {"served_digest", reports_[rank]["served_digest"]},
                       {"buffers_digest", reports_[rank]["buffers_digest"]}});
  }
  return digests;
}

void Reloader::KeepWhatWasStaged(std::vector<Json>& later) const {
  for (std::size_t rank = 0; rank < later.size(); ++rank) {
    later[rank] = WithLater(reports_[rank], later[rank]);
    later[rank]["rank"] = rank;
  }
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
void Reloader::Serve(const std::optional<Version>& expected, const Version& version) {
  Json digests = RankDigests();
  const std::lock_guard lock(mutex_);
  if (version_ != expected) {
    throw Error(ErrorCode::kInternal, "the served version changed while " + version.ToString() +
                                          " was committed: expected " + NameOf(expected) + ", got " + NameOf(version_));
  }
  version_ = version;
  rank_digests_ = std::move(digests);
  torn_.reset();
  lost_ = false;
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
  version_.reset();
  rank_digests_ = from.digests;
  generator_.SetTorn("between " + NameOf(from.version) + " and " + to.ToString() +
                     ", and answers nothing until a whole version lands: " + why);
}

void Reloader::LoseWeights() {
  const std::lock_guard lock(mutex_);
  if (!version_ && !torn_) return;  // nothing was served yet
  lost_ = true;
  torn_ = NotWhole{torn_ ? torn_->from : version_, std::nullopt};
  version_.reset();
  if (state_ == "serving") state_ = "torn";
  generator_.SetTorn("since a rank was lost, and " + NameOf(torn_->from) +
                     " with the memory of its device: it answers nothing until a whole version lands");
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
          {"commit", CommitPolicyName(ranks_.commit_policy())},
          {"ranks", std::move(ranks)},
          {"channel", channel},
          {"last_report", last_report_},
          {"last_error", last_error_}};
}

std::optional<Version> Reloader::version() const {
  const std::lock_guard lock(mutex_);
  return version_;
}

}  // namespace layercast
