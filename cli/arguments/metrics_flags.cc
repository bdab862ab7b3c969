#include "cli/arguments/arguments.h"

namespace layercast::cli {

void DeclareMetrics(CLI::App& app, std::string& bind, bool& open) {
  CLI::Option* const at =
      app.add_option("--metrics-bind", bind, "HOST:PORT where Prometheus is answered; port 0 picks one");
  app.add_flag("--metrics-open", open, "Of --metrics-bind: also beyond loopback, to whoever reaches it")->needs(at);
}

std::string MetricsText(const Json& address) {
  return address.is_null() ? "" : ", metrics at http://" + address.get<std::string>() + "/metrics";
}

}  // namespace layercast::cli
