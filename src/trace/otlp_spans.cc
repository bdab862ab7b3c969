#include "src/trace/otlp_spans.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace layercast {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kInternal = 1;  // SpanKind
constexpr int kFailed = 2;    // StatusCode

Json Text(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", {{"stringValue", value}}}};
}
// 64-bit numbers are texts in the JSON of protocol buffers.
Json Number(const std::string& key, std::int64_t value) {
  return {{"key", key}, {"value", {{"intValue", std::to_string(value)}}}};
}

// The spans of one process.
class Spans {
 public:
  Spans(const ProcessTrace& process, const TraceContext& trace, std::int64_t to_1970)
      : process_(process), trace_hex_(trace.TraceHex()), to_1970_(to_1970) {}

  Json All() const {
    Json spans = Json::array();
    for (const TraceLane& lane : process_.lanes) {
      for (const TraceSpan& span : lane.spans()) spans.push_back(One(lane, span));
    }
    if (!spans.empty()) spans.push_back(Root());
    return spans;
  }

 private:
  Json Span(const std::string& name, std::uint64_t id, std::uint64_t parent, std::int64_t begin_ns,
            std::int64_t end_ns) const {
    Json span = {{"traceId", trace_hex_}, {"spanId", SpanHex(id)}};
    if (parent != 0) span["parentSpanId"] = SpanHex(parent);
    span["name"] = name;
    span["kind"] = kInternal;
    span["startTimeUnixNano"] = std::to_string(begin_ns + to_1970_);
    span["endTimeUnixNano"] = std::to_string(end_ns + to_1970_);
    span["attributes"] = Json::array();
    span["status"] = Json::object();
    return span;
  }

  // What all others are parts of.
  Json Root() const {
    std::int64_t begin = std::numeric_limits<std::int64_t>::max();
    std::int64_t end = std::numeric_limits<std::int64_t>::min();
    for (const TraceLane& lane : process_.lanes) {
      for (const TraceSpan& span : lane.spans()) {
        begin = std::min(begin, span.begin_ns);
        end = std::max(end, span.end_ns);
      }
    }
    Json root = Span("sync: " + process_.service, process_.span, process_.parent, begin, end);
    for (const auto& [name, fact] : process_.facts) {
      root["attributes"].push_back(Text("layercast." + name, fact));
      if (name == "error") root["status"] = {{"code", kFailed}, {"message", fact}};
    }
    root["attributes"].push_back(Number("layercast.clock_round_trip_ns", process_.offset.round_trip_ns));
    return root;
  }

  Json One(const TraceLane& lane, const TraceSpan& span) const {
    Json json = Span(lane.name(), NewSpan(), process_.span, span.begin_ns, span.end_ns);
    Json& attributes = json["attributes"];
    attributes.push_back(Text("layercast.kind", std::string(TraceKindName(lane.kind()))));
    if (!span.first.empty()) attributes.push_back(Text("layercast.of", span.first));
    if (!span.last.empty()) attributes.push_back(Text("layercast.to", span.last));
    attributes.push_back(Number("layercast.spans", static_cast<std::int64_t>(span.count)));
    attributes.push_back(Number("layercast.busy_ns", span.busy_ns));
    return json;
  }

  const ProcessTrace& process_;
  const std::string trace_hex_;
  const std::int64_t to_1970_;
};

}  // namespace

std::string OtlpBody(std::span<const ProcessTrace> processes, const TraceContext& trace, std::int64_t to_1970) {
  Json resources = Json::array();
  for (const ProcessTrace& process : processes) {
    const Json attributes = {Text("service.name", "layercast-" + process.service),
                             Text("service.instance.id", process.name), Number("process.pid", process.pid)};
    resources.push_back(
        {{"resource", {{"attributes", attributes}}},
         {"scopeSpans", {{{"scope", {{"name", "layercast"}}}, {"spans", Spans(process, trace, to_1970).All()}}}}});
  }
  return Json{{"resourceSpans", std::move(resources)}}.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace layercast
