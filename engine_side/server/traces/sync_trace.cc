#include "engine_side/server/traces/sync_trace.h"

#include <algorithm>
#include <cstdint>
#include <exception>
#include <optional>
#include <utility>

#include "engine_side/server/group/reload_request.h"
#include "src/base/log.h"
#include "src/net/zmq/endpoint.h"
#include "src/session/ask/publisher_status.h"
#include "src/trace/otlp_spans.h"

namespace layercast {
namespace {

constexpr std::chrono::milliseconds kRankAnswer{10'000};
constexpr std::chrono::milliseconds kPublisherAnswer{2'000};
constexpr std::size_t kSpansOfAllRanks = 16'384;  // in one lane of each
constexpr std::size_t kFewestSpans = 64;

// The trace that the caller names, or the one that both ends know.
TraceContext ContextOf(const Json& params, const std::string& session) {
  if (IsGiven(params, "trace")) {
    const std::string text = params["trace"].value("traceparent", "");
    if (const std::optional<TraceContext> given = ParseTraceparent(text)) return *given;
  }
  return TraceOfSession(session);
}

bool Says(const Json& params, const char* field) {
  return IsGiven(params, "trace") && params["trace"].value(field, false);
}

}  // namespace

SyncTrace::SyncTrace(const Json& params, std::string session, OtlpSender* otlp)
    : session_(std::move(session)),
      otlp_(Says(params, "sent") ? nullptr : otlp),
      asked_(Says(params, "wanted")),
      asker_sends_(Says(params, "sent")),
      context_(ContextOf(params, session_)) {
  if (!asked_ && otlp_ == nullptr) return;
  recorder_.Begin();
  to_1970_ = NanosecondsTo1970();
}

std::size_t SyncTrace::SpansOfRank(const RankGroup& ranks) const {
  if (!recorder_.on()) return 0;
  const auto size = static_cast<std::size_t>(ranks.parallel().engine_size());
  return std::clamp(kSpansOfAllRanks / size, kFewestSpans, TraceRecorder::kSpansPerLane);
}

void SyncTrace::PutTogether(RankGroup& ranks, const std::string& endpoint, const Json& params, Json& outcome) noexcept {
  if (!recorder_.on()) return;
  try {
    const std::vector<ProcessTrace> all = Everybody(ranks, endpoint, params, outcome);
    if (otlp_ != nullptr) {
      const auto is_mine = [](const ProcessTrace& one) { return one.service != "publisher"; };  // which sends its own
      std::vector<ProcessTrace> mine;
      std::ranges::copy_if(all, std::back_inserter(mine), is_mine);
      otlp_->Put(OtlpBody(mine, context_, to_1970_));
    }
    if (!asked_) return;
    outcome["trace"] = Json::array();
    for (const ProcessTrace& process : all) outcome["trace"].push_back(ProcessTraceToJson(process));
  } catch (const std::exception& error) {
    log::warn("there is no timeline of {}: {}", session_, error.what());
  }
}

std::vector<ProcessTrace> SyncTrace::Everybody(RankGroup& ranks, const std::string& endpoint, const Json& params,
                                               const Json& outcome) {
  std::vector<ProcessTrace> all{Mine(endpoint, outcome)};
  AddRanks(ranks, all);
  if (IsGiven(params, "publisher")) AddPublishers(ranks, params["publisher"].get<std::string>(), all);
  return all;
}

ProcessTrace SyncTrace::Mine(const std::string& endpoint, const Json& outcome) {
  ProcessTrace mine = TraceOfThisProcess("engine " + endpoint, "engine", recorder_.Take());
  mine.span = span_;
  mine.parent = context_.span;
  mine.facts.emplace_back("session", session_);
  const Json& report = outcome["report"];
  if (report.is_object() && report["version"].is_object()) {
    mine.facts.emplace_back("version", VersionFromJson(report["version"]).ToString());
    mine.facts.emplace_back("channel", report["channel"]["name"].get<std::string>());
  }
  if (outcome["error"].is_object()) mine.facts.emplace_back("error", ErrorFromJson(outcome["error"]).what());
  return mine;
}

// A rank that is gone has taken what it knew with it.
void SyncTrace::AddRanks(RankGroup& ranks, std::vector<ProcessTrace>& all) const {
  const std::string of = " of " + all.front().name;
  for (const RankAnswer& answer : ranks.Try("trace", Json::object(), Deadline::After(kRankAnswer))) {
    if (answer.error) {
      log::warn("the timeline of {} lacks a rank: {}", session_, answer.error->what());
      continue;
    }
    ProcessTrace rank = ProcessTraceFromJson(answer.result);
    rank.name += of;
    rank.span = NewSpan();
    rank.parent = span_;
    all.push_back(std::move(rank));
  }
}

void SyncTrace::AddPublishers(const RankGroup& ranks, const std::string& publishers,
                              std::vector<ProcessTrace>& all) const {
  const TraceContext mine{context_.trace, span_};
  for (const std::string& endpoint : SplitEndpoints(publishers)) {
    try {
      const wire::SessionTrace ask{.session = session_, .traceparent = mine.Traceparent(), .sent = asker_sends_};
      const Deadline deadline = Deadline::After(kPublisherAnswer).OrStop(ranks.ending());
      std::optional<ProcessTrace> publisher = AskSessionTrace(endpoint, ranks.keys(), ask, deadline);
      if (!publisher) throw Error(ErrorCode::kNotFound, "it knows nothing of this session");
      publisher->name = "publisher " + endpoint;
      publisher->parent = span_;
      all.push_back(*std::move(publisher));
    } catch (const std::exception& error) {
      log::warn("the timeline of {} lacks publisher {}: {}", session_, endpoint, error.what());
      all.front().facts.emplace_back("publisher " + endpoint, error.what());
    }
  }
}

}  // namespace layercast
