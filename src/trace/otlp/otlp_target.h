// Where traces are sent: OpenTelemetry's own variables, or a flag in place of them. Used by the programs.
#pragma once

#include <map>
#include <optional>
#include <string>

namespace layercast {

// Value.
struct OtlpTarget {
  std::string base;                                   // "http://host:4318"
  std::string path;                                   // "/v1/traces"
  std::multimap<std::string, std::string> headers{};  // which may hold secrets: never logged

  // By `endpoint`, a base as OTEL_EXPORTER_OTLP_ENDPOINT is; if that is empty, by that variable, or by
  // OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, which is whole. OTEL_EXPORTER_OTLP_HEADERS are sent along. nullopt: there is
  // none. Throws kInvalidArgument if it is no URL of http or https.
  static std::optional<OtlpTarget> From(const std::string& endpoint);
};

}  // namespace layercast
