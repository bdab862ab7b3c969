#include "src/trace/trace_lane.h"

#include <algorithm>
#include <array>
#include <utility>

#include "layercast/error.h"

namespace layercast {
namespace {

constexpr std::array<std::string_view, 6> kKindNames = {"call", "stage", "wait", "chunks", "layers", "serving"};

void Absorb(TraceSpan& into, const TraceSpan& later) {
  into.begin_ns = std::min(into.begin_ns, later.begin_ns);
  into.end_ns = std::max(into.end_ns, later.end_ns);
  into.busy_ns += later.busy_ns;
  into.count += later.count;
  const std::string& last = later.last.empty() ? later.first : later.last;
  if (!last.empty()) into.last = last;
}

}  // namespace

std::string_view TraceKindName(TraceKind kind) { return kKindNames.at(static_cast<std::size_t>(kind)); }

TraceKind TraceKindNamed(std::string_view name) {
  const auto* const found = std::ranges::find(kKindNames, name);
  if (found == kKindNames.end()) throw Error(ErrorCode::kCorrupt, "a trace: no kind of spans is called so");
  return static_cast<TraceKind>(found - kKindNames.begin());
}

TraceLane::TraceLane(std::string name, TraceKind kind, std::size_t capacity)
    : name_(std::move(name)), kind_(kind), capacity_(std::max<std::size_t>(capacity, 2)) {}

TraceLane::TraceLane(std::string name, TraceKind kind, std::vector<TraceSpan> spans)
    : name_(std::move(name)),
      kind_(kind),
      capacity_(std::max<std::size_t>(spans.size(), 2)),
      spans_(std::move(spans)) {}

void TraceLane::Add(TraceTime begin, TraceTime end, std::string_view of) {
  const std::int64_t at = TraceNanoseconds(begin);
  const std::int64_t until = TraceNanoseconds(end);
  TraceSpan span{.begin_ns = at, .end_ns = until, .busy_ns = until - at, .first = std::string(of)};
  if (!spans_.empty() && spans_.back().count < merged_) return Absorb(spans_.back(), span);
  if (spans_.size() == capacity_) MergePairs();
  spans_.push_back(std::move(span));
}

void TraceLane::MergePairs() {
  std::vector<TraceSpan> merged;
  merged.reserve(capacity_);
  for (std::size_t i = 0; i < spans_.size(); i += 2) {
    merged.push_back(std::move(spans_[i]));
    if (i + 1 < spans_.size()) Absorb(merged.back(), spans_[i + 1]);
  }
  spans_ = std::move(merged);
  merged_ *= 2;
}

std::uint64_t TraceLane::count() const {
  std::uint64_t count = 0;
  for (const TraceSpan& span : spans_) count += span.count;
  return count;
}

std::int64_t TraceLane::busy_ns() const {
  std::int64_t busy = 0;
  for (const TraceSpan& span : spans_) busy += span.busy_ns;
  return busy;
}

void TraceLane::Shift(std::int64_t nanoseconds) {
  for (TraceSpan& span : spans_) {
    span.begin_ns += nanoseconds;
    span.end_ns += nanoseconds;
  }
}

}  // namespace layercast
