#include "src/trace/process_trace.h"

#include <unistd.h>

#include "layercast/error.h"

namespace layercast {
namespace {

using Json = nlohmann::ordered_json;

Json SpanToJson(const TraceSpan& span) {
  Json json = {span.begin_ns, span.end_ns, span.busy_ns, span.count};
  if (!span.first.empty()) json.push_back(span.first);
  if (!span.last.empty()) json.push_back(span.last);
  return json;
}

TraceSpan SpanFromJson(const Json& json) {
  TraceSpan span{.begin_ns = json.at(0).get<std::int64_t>(),
                 .end_ns = json.at(1).get<std::int64_t>(),
                 .busy_ns = json.at(2).get<std::int64_t>(),
                 .count = json.at(3).get<std::uint64_t>()};
  if (span.end_ns < span.begin_ns) throw Error(ErrorCode::kCorrupt, "a trace: a span ends before it begins");
  if (json.size() > 4) span.first = json[4].get<std::string>();
  if (json.size() > 5) span.last = json[5].get<std::string>();
  return span;
}

}  // namespace

void ProcessTrace::MoveBy(const ClockOffset& by) {
  offset.offset_ns += by.offset_ns;
  offset.round_trip_ns += by.round_trip_ns;
  for (TraceLane& lane : lanes) lane.Shift(-by.offset_ns);
}

ProcessTrace TraceOfThisProcess(std::string name, std::string service, std::vector<TraceLane> lanes) {
  return {.name = std::move(name),
          .service = std::move(service),
          .pid = ::getpid(),
          .clock = NameOfClock(),
          .lanes = std::move(lanes)};
}

Json ProcessTraceToJson(const ProcessTrace& trace) {
  Json json = {{"name", trace.name},
               {"service", trace.service},
               {"pid", trace.pid},
               {"span", trace.span},
               {"parent", trace.parent},
               {"clock", trace.clock},
               {"clock_is_unknown", trace.clock_is_unknown},
               {"offset_ns", trace.offset.offset_ns},
               {"round_trip_ns", trace.offset.round_trip_ns},
               {"facts", Json::object()},
               {"lanes", Json::array()}};
  for (const auto& [name, fact] : trace.facts) json["facts"][name] = fact;
  for (const TraceLane& lane : trace.lanes) {
    Json spans = Json::array();
    for (const TraceSpan& span : lane.spans()) spans.push_back(SpanToJson(span));
    json["lanes"].push_back({{"name", lane.name()}, {"kind", TraceKindName(lane.kind())}, {"spans", std::move(spans)}});
  }
  return json;
}

ProcessTrace ProcessTraceFromJson(const Json& json) {
  ProcessTrace trace{.name = json.at("name").get<std::string>(),
                     .service = json.at("service").get<std::string>(),
                     .pid = json.at("pid").get<std::int64_t>(),
                     .span = json.at("span").get<std::uint64_t>(),
                     .parent = json.at("parent").get<std::uint64_t>(),
                     .clock = json.at("clock").get<std::string>(),
                     .offset = {json.at("offset_ns").get<std::int64_t>(), json.at("round_trip_ns").get<std::int64_t>()},
                     .clock_is_unknown = json.at("clock_is_unknown").get<bool>()};
  for (const auto& [name, fact] : json.at("facts").items()) trace.facts.emplace_back(name, fact.get<std::string>());
  for (const Json& lane : json.at("lanes")) {
    std::vector<TraceSpan> spans;
    for (const Json& span : lane.at("spans")) spans.push_back(SpanFromJson(span));
    trace.lanes.emplace_back(lane.at("name").get<std::string>(), TraceKindNamed(lane.at("kind").get<std::string>()),
                             std::move(spans));
  }
  return trace;
}

}  // namespace layercast
