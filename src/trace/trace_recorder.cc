#include "src/trace/trace_recorder.h"

#include <algorithm>
#include <iterator>

namespace layercast {

void TraceRecorder::Begin(std::size_t spans_per_lane) {
  lanes_.clear();
  spans_per_lane_ = spans_per_lane;
}

TraceLane* TraceRecorder::Lane(std::string_view name, TraceKind kind) {
  if (!on()) return nullptr;
  const auto is_it = [&](const TraceLane& lane) { return lane.name() == name && lane.kind() == kind; };
  const auto found = std::ranges::find_if(lanes_, is_it);
  return found != lanes_.end() ? &*found : &lanes_.emplace_back(std::string(name), kind, spans_per_lane_);
}

std::vector<TraceLane> TraceRecorder::Take() {
  std::erase_if(lanes_, [](const TraceLane& lane) { return lane.spans().empty(); });
  std::vector<TraceLane> taken(std::make_move_iterator(lanes_.begin()), std::make_move_iterator(lanes_.end()));
  Begin(0);
  return taken;
}

}  // namespace layercast
