#include "src/control/json_forms.h"

#include <cstdint>

namespace layercast {
namespace {

constexpr int kDeepestMessage = 32;

}  // namespace

Json ParseMessage(std::string_view text) {
  bool deep = false;
  const auto keep = [&](int depth, Json::parse_event_t /*event*/, Json& /*parsed*/) {
    deep = deep || depth > kDeepestMessage;
    return !deep;
  };
  Json message = Json::parse(text, keep, false);
  return deep ? Json(Json::value_t::discarded) : message;
}

Json VersionToJson(const std::optional<Version>& version) {
  if (!version) return nullptr;
  return {{"lineage", version->lineage}, {"step", version->step}, {"digest", version->digest.ToHex()}};
}

Version VersionFromJson(const Json& json) {
  return {.lineage = json.at("lineage").get<std::string>(),
          .step = json.at("step").get<std::uint64_t>(),
          .digest = Digest::FromHex(json.at("digest").get<std::string>()).value_or(Digest{})};
}

Json ErrorToJson(const Error& error) { return {{"code", ErrorCodeName(error.code())}, {"message", error.what()}}; }

Error ErrorFromJson(const Json& json, const std::string& peer) {
  return {ErrorCodeNamed(json.value("code", "internal")), peer + json.value("message", "an error without a message")};
}

}  // namespace layercast
