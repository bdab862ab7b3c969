// What the messages of RPC.md, reports and --json output have in common: how a version and an error are written.
#pragma once

#include <chrono>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "layercast/error.h"
#include "layercast/version.h"

namespace layercast {

// Keeps fields in the order in which they were set.
using Json = nlohmann::ordered_json;

// {"lineage", "step", "digest"}; null where there is none.
Json VersionToJson(const std::optional<Version>& version);
// Throws Json::exception naming the field that is missing or of another type.
Version VersionFromJson(const Json& json);

// `otherwise` where params have none. Throws kInvalidArgument outside of 0 to 2^31 - 1, and Json::exception where it is
// no number.
std::chrono::milliseconds MillisecondsFrom(const Json& params, const char* field, std::chrono::milliseconds otherwise);

// {"code", "message"}
Json ErrorToJson(const Error& error);
// What a call threw: kInvalidArgument of its params where that is a Json::exception.
Error ErrorOfCall(const std::exception& thrown);
// kInternal where `json` has no code. `peer` ("rank 1: ") begins the message.
Error ErrorFromJson(const Json& json, const std::string& peer = "");

}  // namespace layercast
