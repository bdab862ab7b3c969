// Where the spans of syncs are sent: `--otlp-endpoint`, or OpenTelemetry's own variables.
#pragma once

#include <optional>
#include <string>

#include "cli/arguments/arguments.h"
#include "src/trace/otlp/otlp_sender.h"

namespace layercast::cli {

class OtlpFlag {
 public:
  void Declare(CLI::App& app) {
    app.add_option("--otlp-endpoint", endpoint_,
                   "URL of a collector of OpenTelemetry's, which gets the spans of syncs; by default "
                   "OTEL_EXPORTER_OTLP_ENDPOINT, or none");
  }
  // nullopt: there is none.
  std::optional<OtlpTarget> target() const { return OtlpTarget::From(endpoint_); }

 private:
  std::string endpoint_;
};

}  // namespace layercast::cli
