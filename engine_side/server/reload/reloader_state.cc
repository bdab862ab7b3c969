// What an engine serves, and how that changes: the part of the reloader that other threads read.
#include <chrono>
#include <utility>

#include "engine_side/server/group/reload_request.h"
#include "engine_side/server/reload/rank_reports.h"
#include "engine_side/server/reload/reloader.h"
#include "layercast/error.h"
#include "src/control/progress_forms.h"

namespace layercast {
namespace {

std::string NameOf(const std::optional<Version>& version) { return version ? version->ToString() : "no version"; }

}  // namespace

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
  progress["elapsed_ms"] =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - reload.begin).count();
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
  const Json noise = version_ && !ranks.empty() ? ranks.front().value("noise", Json()) : Json();
  Json torn = nullptr;
  if (torn_) torn = {{"from", VersionToJson(torn_->from)}, {"to", VersionToJson(torn_->to)}};
  return {{"state", state_},
          {"version", VersionToJson(version_)},
          {"noise", noise},
          {"progress", under_way_ ? Progress(*under_way_, progress) : Json()},
          {"torn", torn},
          {"previous", previous_ ? VersionToJson(previous_->version) : Json()},
          {"keeps_previous", ranks_.keeps_previous()},
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

std::optional<Version> Reloader::previous() const {
  const std::lock_guard lock(mutex_);
  return previous_ ? previous_->version : std::nullopt;
}

}  // namespace layercast
