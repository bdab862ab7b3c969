// Records what one process does in one sync, for a timeline of it. Off unless somebody asks: then no lane is handed
// out, and a span costs the look at a null pointer. Used by receivers, by ranks, by engines and by controllers, each of
// which has its own.
#pragma once

#include <cstddef>
#include <list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/trace/trace_lane.h"

namespace layercast {

// Resource; for one thread at a time.
class TraceRecorder {
 public:
  // How many spans a lane holds where nobody says otherwise.
  static constexpr std::size_t kSpansPerLane = 1024;

  // Forgets what was recorded. `spans_per_lane` 0: records nothing from now on.
  void Begin(std::size_t spans_per_lane = kSpansPerLane);
  bool on() const { return spans_per_lane_ != 0; }
  // The lane of that name, which is valid until Begin or Take. Null: nothing is recorded.
  TraceLane* Lane(std::string_view name, TraceKind kind);
  // What was recorded. Nothing more is from now on.
  std::vector<TraceLane> Take();

 private:
  std::size_t spans_per_lane_ = 0;
  std::list<TraceLane> lanes_;  // in the order in which they were asked for; a list, since others point to them
};

// The lane of a recorder that may be null.
inline TraceLane* LaneOf(TraceRecorder* recorder, std::string_view name, TraceKind kind) {
  return recorder == nullptr ? nullptr : recorder->Lane(name, kind);
}

// A span until it goes out of scope; none if the lane is null.
class TraceScope {
 public:
  explicit TraceScope(TraceLane* lane) : lane_(lane), begin_(lane == nullptr ? TraceTime() : TraceTime::clock::now()) {}
  ~TraceScope() {
    if (lane_ != nullptr) lane_->Add(begin_, TraceTime::clock::now());
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  TraceLane* const lane_;
  const TraceTime begin_;
};

}  // namespace layercast
