// The spans of a sync as OpenTelemetry's collectors take them: OTLP, as JSON over HTTP. Used by the sender.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "src/trace/process_trace.h"
#include "src/trace/trace_context.h"

namespace layercast {

// The body of a POST to /v1/traces. Each process is a resource, and one span of it is the parent of all its others. A
// fact that is called "error" is that span's status. `to_1970` is NanosecondsTo1970, when the trace began.
std::string OtlpBody(std::span<const ProcessTrace> processes, const TraceContext& trace, std::int64_t to_1970);

}  // namespace layercast
