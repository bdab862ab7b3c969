#include "src/control/json_forms.h"

#include <cstdint>
#include <limits>

#include "src/base/as_error.h"

namespace layercast {
Json VersionToJson(const std::optional<Version>& version) {
  if (!version) return nullptr;
  return {{"lineage", version->lineage}, {"step", version->step}, {"digest", version->digest.ToHex()}};
}

Version VersionFromJson(const Json& json) {
  return {.lineage = json.at("lineage").get<std::string>(),
          .step = json.at("step").get<std::uint64_t>(),
          .digest = Digest::FromHex(json.at("digest").get<std::string>()).value_or(Digest{})};
}

Json NoiseToJson(const std::optional<Noise>& noise) {
  if (!noise) return nullptr;
  return {{"sigma", noise->sigma}, {"seed", noise->seed}, {"own", noise->own}};
}

std::chrono::milliseconds MillisecondsFrom(const Json& params, const char* field, std::chrono::milliseconds otherwise) {
  constexpr double kMost = std::numeric_limits<std::int32_t>::max();
  const double milliseconds = params.value(field, static_cast<double>(otherwise.count()));
  if (milliseconds >= 0 && milliseconds <= kMost) {
    return std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds));
  }
  throw Error(ErrorCode::kInvalidArgument,
              std::string("params: ") + field + ": expected 0 to 2147483647, got " + params[field].dump());
}

Json ErrorToJson(const Error& error) { return {{"code", ErrorCodeName(error.code())}, {"message", error.what()}}; }

Error ErrorOfCall(const std::exception& thrown) {
  if (dynamic_cast<const Json::exception*>(&thrown) == nullptr) return AsError(thrown);
  return {ErrorCode::kInvalidArgument, std::string("params: ") + thrown.what()};
}

// A peer may say anything in its place.
Error ErrorFromJson(const Json& json, const std::string& peer) {
  const auto text = [&](const char* field, const char* otherwise) -> std::string {
    const bool there = json.is_object() && json.contains(field) && json[field].is_string();
    return there ? json[field].get<std::string>() : otherwise;
  };
  return {ErrorCodeNamed(text("code", "internal")), peer + text("message", "an error without a message")};
}

}  // namespace layercast
