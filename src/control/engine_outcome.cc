#include "src/control/engine_outcome.h"

namespace layercast {

EngineOutcome OutcomeFromJson(const std::string& endpoint, const Json& json) {
  EngineOutcome outcome{.endpoint = endpoint, .ok = json.at("ok").get<bool>()};
  if (json.contains("version") && json["version"].is_object()) outcome.version = VersionFromJson(json["version"]);
  if (json.contains("previous") && json["previous"].is_object()) outcome.previous = VersionFromJson(json["previous"]);
  if (json.contains("report") && json["report"].is_object()) outcome.report = json["report"].dump();
  if (json.contains("error") && json["error"].is_object()) outcome.error = ErrorFromJson(json["error"]);
  return outcome;
}

Json OutcomeToJson(const EngineOutcome& outcome) {
  Json json = {{"endpoint", outcome.endpoint},
               {"ok", outcome.ok},
               {"version", VersionToJson(outcome.version)},
               {"previous", VersionToJson(outcome.previous)},
               {"report", outcome.report.empty() ? Json(nullptr) : Json::parse(outcome.report, nullptr, false)},
               {"error", nullptr}};
  if (outcome.error) json["error"] = ErrorToJson(*outcome.error);
  return json;
}

std::string NamingEngine(const std::string& endpoint, const std::string& fault) {
  return fault.find(endpoint) != std::string::npos ? fault : "engine " + endpoint + ": " + fault;
}

}  // namespace layercast
