// What the messages of RPC.md, reports and --json output have in common: how a version and an error are written.
#pragma once

#include <chrono>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "layercast/error.h"
#include "layercast/noise/noise.h"
#include "layercast/version.h"

namespace layercast {

// Keeps fields in the order in which they were set.
using Json = nlohmann::ordered_json;

// {"lineage", "step", "digest"}; null if there is no version.
Json VersionToJson(const std::optional<Version>& version);
// Throws Json::exception, naming the field, if one is missing or has the wrong type.
Version VersionFromJson(const Json& json);

// {"sigma", "seed", "own"}; null if there is no noise.
Json NoiseToJson(const std::optional<Noise>& noise);

// The milliseconds in `field` of `params`, or `otherwise` if there is no such field. Throws kInvalidArgument if they
// are not within 0 to 2^31 - 1, and Json::exception if the field is not a number.
std::chrono::milliseconds MillisecondsFrom(const Json& params, const char* field, std::chrono::milliseconds otherwise);

// {"code", "message"}
Json ErrorToJson(const Error& error);
// The error with which to answer a call that threw `thrown`. A Json::exception becomes kInvalidArgument: the call's
// params were wrong.
Error ErrorOfCall(const std::exception& thrown);
// The code is kInternal if `json` has none, or is no error at all. `peer` ("rank 1: ") is put before the message.
Error ErrorFromJson(const Json& json, const std::string& peer = "");

}  // namespace layercast
