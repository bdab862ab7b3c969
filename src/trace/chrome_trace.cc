#include "src/trace/chrome_trace.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "layercast/error.h"

namespace layercast {
namespace {

using Json = nlohmann::ordered_json;

double Microseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1e3; }

Json Metadata(const char* what, std::size_t process, std::size_t thread, Json arguments) {
  return {{"name", what}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", std::move(arguments)}};
}

// "model.layers.0.mlp.down_proj", "chunk 3 to chunk 6", or the lane's own name.
std::string NameOf(const TraceLane& lane, const TraceSpan& span) {
  if (lane.kind() != TraceKind::kChunks && lane.kind() != TraceKind::kLayers) return lane.name();
  if (span.first.empty()) return lane.name();
  return span.last.empty() ? span.first : span.first + " to " + span.last;
}

Json ArgumentsOf(const TraceSpan& span) {
  Json arguments = Json::object();
  if (!span.first.empty()) arguments["of"] = span.first;
  if (!span.last.empty()) arguments["to"] = span.last;
  if (span.count > 1) {
    arguments["spans"] = span.count;
    arguments["busy_ms"] = static_cast<double>(span.busy_ns) / 1e6;
  }
  return arguments;
}

// The events of one process, whose number is `process`.
class Row {
 public:
  Row(Json& events, std::size_t process, std::int64_t start_ns)
      : events_(events), process_(process), start_ns_(start_ns) {}

  void Describe(const ProcessTrace& trace) {
    events_.push_back(Metadata("process_name", process_, 0, {{"name", trace.name}}));
    events_.push_back(Metadata("process_sort_index", process_, 0, {{"sort_index", process_}}));
    Json labels = {{"pid", trace.pid}, {"service", trace.service}};
    for (const auto& [name, fact] : trace.facts) labels[name] = fact;
    labels["clock_offset_us"] = Microseconds(trace.offset.offset_ns);
    labels["clock_round_trip_us"] = Microseconds(trace.offset.round_trip_ns);
    if (trace.clock_is_unknown) labels["clock"] = "not known: its spans may lie anywhere";
    events_.push_back(
        Metadata("process_labels", process_, 0, {{"labels", trace.service}, {"facts", std::move(labels)}}));
  }

  void Add(const TraceLane& lane, std::size_t thread) {
    events_.push_back(Metadata("thread_name", process_, thread, {{"name", lane.name()}}));
    events_.push_back(Metadata("thread_sort_index", process_, thread, {{"sort_index", thread}}));
    for (const TraceSpan& span : lane.spans()) {
      if (Overlaps(lane.kind())) {
        AddBoth(lane, span, thread);
      } else {
        Json event = Event("X", lane, span, thread, span.begin_ns);
        event["dur"] = Microseconds(span.end_ns - span.begin_ns);
        events_.push_back(std::move(event));
      }
    }
  }

 private:
  // On a thread spans must not overlap, but nest: those that overlap are told by where they begin and end.
  void AddBoth(const TraceLane& lane, const TraceSpan& span, std::size_t thread) {
    const std::size_t id = events_.size();
    for (const char* end : {"b", "e"}) {
      const bool begins = *end == 'b';
      Json event = Event(end, lane, span, thread, begins ? span.begin_ns : span.end_ns);
      event["id"] = id;
      if (!begins) event.erase("args");
      events_.push_back(std::move(event));
    }
  }

  Json Event(const char* phase, const TraceLane& lane, const TraceSpan& span, std::size_t thread,
             std::int64_t at_ns) const {
    return {{"name", NameOf(lane, span)},
            {"cat", TraceKindName(lane.kind())},
            {"ph", phase},
            {"ts", Microseconds(at_ns - start_ns_)},
            {"pid", process_},
            {"tid", thread},
            {"args", ArgumentsOf(span)}};
  }

  Json& events_;
  const std::size_t process_;
  const std::int64_t start_ns_;
};

}  // namespace

std::string ChromeTrace(std::span<const ProcessTrace> processes, std::int64_t start_ns,
                        const std::vector<std::pair<std::string, std::string>>& facts) {
  Json events = Json::array();
  for (std::size_t i = 0; i < processes.size(); ++i) {
    Row row(events, i + 1, start_ns);
    row.Describe(processes[i]);
    for (std::size_t lane = 0; lane < processes[i].lanes.size(); ++lane) row.Add(processes[i].lanes[lane], lane + 1);
  }
  Json trace = {{"displayTimeUnit", "ms"}, {"otherData", Json::object()}, {"traceEvents", std::move(events)}};
  for (const auto& [name, fact] : facts) trace["otherData"][name] = fact;
  return trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

TraceFile::TraceFile(std::string path)
    : path_(std::move(path)), file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666)) {
  if (file_.get() >= 0) return;
  throw Error(ErrorCode::kInvalidArgument, "the trace's file '" + path_ + "': " + std::strerror(errno));
}

void TraceFile::Write(const std::string& text) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t wrote = ::write(file_.get(), text.data() + done, text.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) throw Error(ErrorCode::kUnavailable, "the trace's file '" + path_ + "': " + std::strerror(errno));
    done += static_cast<std::size_t>(wrote);
  }
}

}  // namespace layercast
