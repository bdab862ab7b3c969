// What became of one engine in a call that went to several.
#pragma once

#include <string>

#include "layercast/controller.h"
#include "src/control/json_forms.h"

namespace layercast {

// Reads an engine's answer to a reload. Throws Json::exception, naming the field, if one is missing or has the wrong
// type.
EngineOutcome OutcomeFromJson(const std::string& endpoint, const Json& json);

// The same as --json output shows it: {"endpoint", "ok", "version", "previous", "report", "error"}.
Json OutcomeToJson(const EngineOutcome& outcome);

// The fault of an engine, with the engine's endpoint in front ("engine tcp://a:1: ...") unless `fault` contains it.
std::string NamingEngine(const std::string& endpoint, const std::string& fault);

}  // namespace layercast
