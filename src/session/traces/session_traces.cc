#include "src/session/traces/session_traces.h"

#include <algorithm>
#include <ranges>
#include <utility>

#include "src/session/link/session_name.h"

namespace layercast {
namespace {

constexpr std::size_t kSpansPerLane = 64;

std::vector<std::byte> BytesOf(const std::string& text) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
  return {bytes, bytes + text.size()};
}

}  // namespace

SessionRecord::SessionRecord(const wire::Hello& hello, TraceTime begun)
    : session_(SessionName(hello.engine, hello.attempt)), rank_("rank " + std::to_string(hello.rank)), begin_(begun) {}

void SessionRecord::Add(std::string_view lane, TraceTime begin, TraceTime end, const std::string& of) {
  const std::lock_guard lock(mutex_);
  const std::string name = rank_ + ": " + std::string(lane);
  auto found = std::ranges::find(lanes_, name, &TraceLane::name);
  if (found == lanes_.end()) {
    lanes_.emplace_back(name, TraceKind::kServing, kSpansPerLane);
    found = lanes_.end() - 1;
  }
  found->Add(begin, end, of);
}

void SessionRecord::End() {
  const std::lock_guard lock(mutex_);
  ended_ = TraceTime::clock::now();
}

void SessionRecord::CopyTo(std::vector<TraceLane>& lanes,
                           std::vector<std::pair<std::string, std::string>>& facts) const {
  const std::lock_guard lock(mutex_);
  TraceLane session(rank_ + ": session", TraceKind::kServing, 2);
  session.Add(begin_, ended_.value_or(TraceTime::clock::now()));
  lanes.push_back(std::move(session));
  lanes.insert(lanes.end(), lanes_.begin(), lanes_.end());
  if (!ended_) facts.emplace_back(rank_, "its session goes on");
}

SessionTraces::~SessionTraces() {
  for (Sync& sync : syncs_) SendOf(sync, TraceOfSession(sync.session));
}

std::shared_ptr<SessionRecord> SessionTraces::Begin(const wire::Hello& hello, TraceTime begun) {
  auto record = std::make_shared<SessionRecord>(hello, begun);
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(syncs_, record->session_, &Sync::session);
  Sync& sync = found != syncs_.end() ? *found : syncs_.emplace_back(Sync{.session = record->session_, .ranks = {}});
  sync.ranks.push_back(record);
  if (syncs_.size() > kMostSyncs) {
    SendOf(syncs_.front(), TraceOfSession(syncs_.front().session));
    syncs_.pop_front();
  }
  return record;
}

wire::SessionTrace SessionTraces::Answer(const wire::SessionTrace& ask) {
  wire::SessionTrace answer{.session = ask.session, .heard_ns = static_cast<std::uint64_t>(TraceNow())};
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(syncs_, ask.session, &Sync::session);
  if (found != syncs_.end()) {
    ProcessTrace trace = TraceOf(*found);
    const std::optional<TraceContext> of = ParseTraceparent(ask.traceparent);
    if (of) trace.parent = of->span;
    answer.trace = BytesOf(ProcessTraceToJson(trace).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
    if (answer.trace.size() > wire::kMaxTraceBytes) answer.trace.clear();
    found->sent = found->sent || ask.sent;
    SendOf(*found, of.value_or(TraceOfSession(ask.session)));
  }
  answer.answered_ns = static_cast<std::uint64_t>(TraceNow());
  return answer;
}

void SessionTraces::Sweep() {
  if (!send_) return;
  const std::lock_guard lock(mutex_);
  for (Sync& sync : syncs_) {
    const std::optional<TraceTime> end = EndOf(sync);
    if (end && TraceTime::clock::now() - *end > kAskedWithin) SendOf(sync, TraceOfSession(sync.session));
  }
}

ProcessTrace SessionTraces::TraceOf(const Sync& sync) const {
  ProcessTrace trace = TraceOfThisProcess(name_, "publisher", {});
  trace.span = NewSpan();
  trace.facts.emplace_back("session", sync.session);
  for (const auto& rank : sync.ranks) rank->CopyTo(trace.lanes, trace.facts);
  return trace;
}

void SessionTraces::SendOf(Sync& sync, const TraceContext& of) const {
  if (!send_ || std::exchange(sync.sent, true)) return;
  ProcessTrace trace = TraceOf(sync);
  trace.parent = of.span;
  send_(std::move(trace), of);
}

// When the last of its sessions ended; nullopt: one goes on.
std::optional<TraceTime> SessionTraces::EndOf(const Sync& sync) {
  std::optional<TraceTime> end;
  for (const auto& rank : sync.ranks) {
    const std::lock_guard lock(rank->mutex_);
    if (!rank->ended_) return std::nullopt;
    end = std::max(end.value_or(*rank->ended_), *rank->ended_);
  }
  return end;
}

}  // namespace layercast
