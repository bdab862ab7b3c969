// One lane of a trace: the spans of one kind that a process went through, in the order in which they ended. A lane is
// bounded, and drops nothing: when it is full, neighbours are merged in pairs, and from then on as many as that are
// merged from the start. What is merged says how many spans it was, and how long these took without what lies between
// them, so the sum over a lane is what it would be without a bound.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace layercast {

// On Linux this is CLOCK_MONOTONIC, which all processes of a host share.
using TraceTime = std::chrono::steady_clock::time_point;

inline std::int64_t TraceNanoseconds(TraceTime time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

// Value.
struct TraceSpan {
  std::int64_t begin_ns = 0;
  std::int64_t end_ns = 0;
  std::int64_t busy_ns = 0;  // of all that were merged into this one
  std::uint64_t count = 1;   // how many these are
  std::string first{};       // what the first was of: "chunk 3", or a layer; may be empty
  std::string last{};        // likewise the last; empty: there is only one
  bool operator==(const TraceSpan&) const = default;
};

enum class TraceKind : std::uint8_t {
  kCall,    // what a process was asked to do; a few of them, and all else is within one
  kStage,   // a stage of the reload, as the report names it: the lane's sum is what the report says
  kWait,    // for somebody else
  kChunks,  // each from the request to its arrival; these overlap
  kLayers,  // each from its first piece until it is processed; these overlap
  kServing  // what a publisher did for a session
};

constexpr bool Overlaps(TraceKind kind) { return kind == TraceKind::kChunks || kind == TraceKind::kLayers; }
std::string_view TraceKindName(TraceKind kind);  // "call"
// Throws kCorrupt for any other name.
TraceKind TraceKindNamed(std::string_view name);

// Value; one thread at a time.
class TraceLane {
 public:
  // Holds at most `capacity` spans, at least 2.
  TraceLane(std::string name, TraceKind kind, std::size_t capacity);
  // One that was recorded elsewhere.
  TraceLane(std::string name, TraceKind kind, std::vector<TraceSpan> spans);

  void Add(TraceTime begin, TraceTime end, std::string_view of = {});

  const std::string& name() const { return name_; }
  TraceKind kind() const { return kind_; }
  const std::vector<TraceSpan>& spans() const { return spans_; }
  std::uint64_t count() const;   // of what was added
  std::int64_t busy_ns() const;  // all together
  // Moves all spans by so much.
  void Shift(std::int64_t nanoseconds);

 private:
  void MergePairs();

  std::string name_;
  TraceKind kind_;
  std::size_t capacity_;
  std::uint64_t merged_ = 1;  // how many spans are merged into one by now
  std::vector<TraceSpan> spans_;
};

}  // namespace layercast
