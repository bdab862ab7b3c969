#include "src/trace/reload_trace.h"

#include <utility>

#include "layercast/error.h"
#include "src/base/log.h"
#include "src/base/utf8.h"
#include "src/trace/otlp_spans.h"

namespace layercast {
namespace {

TraceContext ContextFor(const std::string& traceparent) {
  if (traceparent.empty()) return NewTrace();
  if (const std::optional<TraceContext> given = ParseTraceparent(traceparent)) return *given;
  throw Error(ErrorCode::kInvalidArgument,
              "traceparent: expected one of W3C's, 00-TRACE-SPAN-01 in hexadecimal digits, got " + Quote(traceparent));
}

}  // namespace

ReloadTrace::ReloadTrace(Wanted wanted) : wanted_(std::move(wanted)), context_(ContextFor(wanted_.traceparent)) {
  if (!wanted_.file.empty()) file_.emplace(wanted_.file);
  if (!file_ && !wanted_.on_trace) return;
  recorder_.Begin();
  to_1970_ = NanosecondsTo1970();
}

void ReloadTrace::AddTo(Json& params) const {
  if (!wanted() && wanted_.traceparent.empty()) return;
  const TraceContext parent{context_.trace, wanted() ? span_ : context_.span};
  params["trace"] = {{"traceparent", parent.Traceparent()}};
  if (wanted()) params["trace"]["wanted"] = true;
  if (wanted_.on_trace) params["trace"]["sent"] = true;
}

void ReloadTrace::Called(const std::string& endpoint, const std::string& method, TraceTime begin) {
  const std::lock_guard lock(mutex_);
  TraceLane* const lane = recorder_.Lane("engine " + endpoint, TraceKind::kCall);
  if (lane != nullptr) lane->Add(begin, TraceTime::clock::now(), method);
}

void ReloadTrace::Came(const std::string& endpoint, const Json& answer, const MeasureClock& measure) {
  if (!answer.is_object() || !answer.contains("trace")) return;
  try {
    std::vector<ProcessTrace> came;
    for (const Json& process : answer["trace"]) came.push_back(ProcessTraceFromJson(process));
    if (came.empty()) return;
    // All that an engine says is by its own clock.
    const bool same = !came.front().clock.empty() && came.front().clock == NameOfClock();
    const std::optional<ClockOffset> ahead = same ? ClockOffset() : measure();
    for (ProcessTrace& process : came) {
      process.MoveBy(ahead.value_or(ClockOffset()));
      process.clock_is_unknown = process.clock_is_unknown || !ahead;
    }
    const std::lock_guard lock(mutex_);
    for (ProcessTrace& process : came) others_.push_back(std::move(process));
  } catch (const std::exception& error) {
    log::warn("the timeline lacks engine {}: {}", endpoint, error.what());
  }
}

std::vector<ProcessTrace> ReloadTrace::Everybody(TraceTime begin, const std::string& error) {
  const std::lock_guard lock(mutex_);
  recorder_.Lane("reload", TraceKind::kCall)->Add(begin, TraceTime::clock::now());
  ProcessTrace mine = TraceOfThisProcess("controller", "controller", recorder_.Take());
  mine.span = span_;
  mine.parent = context_.span;
  if (!error.empty()) mine.facts.emplace_back("error", error);
  std::vector<ProcessTrace> all{std::move(mine)};
  for (ProcessTrace& other : others_) all.push_back(std::move(other));
  return all;
}

// The reload is over: nothing that goes wrong here changes what became of it.
void ReloadTrace::HandOver(TraceTime begin, const std::string& error) noexcept {
  if (!wanted()) return;
  try {
    const std::vector<ProcessTrace> all = Everybody(begin, error);
    if (file_) {
      std::vector<std::pair<std::string, std::string>> facts = {
          {"trace_id", context_.TraceHex()}, {"began_unix_ns", std::to_string(TraceNanoseconds(begin) + to_1970_)}};
      if (!error.empty()) facts.emplace_back("error", error);
      file_->Write(ChromeTrace(all, TraceNanoseconds(begin), facts));
    }
    if (wanted_.on_trace) wanted_.on_trace(OtlpBody(all, context_, to_1970_));
  } catch (const std::exception& failed) {
    log::error("the timeline of the reload is lost: {}", failed.what());
  }
}

}  // namespace layercast
