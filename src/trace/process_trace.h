// What one process has recorded of a sync, as processes hand it on to whoever puts the timeline together. Used by
// ranks, engines, publishers and controllers.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "src/trace/trace_clock.h"
#include "src/trace/trace_lane.h"

namespace layercast {

// Value.
struct ProcessTrace {
  std::string name;     // "engine tcp://...", "rank 0 of engine tcp://..."
  std::string service;  // "controller", "engine", "rank" or "publisher"
  std::int64_t pid = 0;
  std::uint64_t span = 0;         // that all of its spans are parts of
  std::uint64_t parent = 0;       // and what that is a part of; 0: nothing, or it is not known
  std::string clock{};            // NameOfClock(), while the spans are by that
  ClockOffset offset{};           // by which they were moved to the reader's clock, and how good that is
  bool clock_is_unknown = false;  // no offset could be measured: spans may lie anywhere
  std::vector<std::pair<std::string, std::string>> facts{};  // the version, the channel, the error, ...
  std::vector<TraceLane> lanes{};

  // By `offset` in all that it has from now on.
  void MoveBy(const ClockOffset& by);
};

// Of this process, whose lanes are those, with its clock.
ProcessTrace TraceOfThisProcess(std::string name, std::string service, std::vector<TraceLane> lanes);

nlohmann::ordered_json ProcessTraceToJson(const ProcessTrace& trace);
// Throws Json::exception or kCorrupt if that is none.
ProcessTrace ProcessTraceFromJson(const nlohmann::ordered_json& json);

}  // namespace layercast
