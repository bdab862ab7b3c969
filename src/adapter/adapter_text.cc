#include "src/adapter/adapter_text.h"

#include <nlohmann/json.hpp>

#include "layercast/error.h"
#include "src/base/utf8.h"

namespace layercast {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr const char* kAdapters = "adapters";

OrderedJson VersionJson(const std::optional<Version>& version) {
  if (!version) return nullptr;
  return {{"lineage", version->lineage}, {"step", version->step}, {"digest", version->digest.ToHex()}};
}

std::optional<Version> BaseFrom(const OrderedJson& version) {
  if (version.is_null()) return std::nullopt;
  const std::string digest = version.at("digest").get<std::string>();
  const std::optional<Digest> parsed = Digest::FromHex(digest);
  if (!parsed) throw Error(ErrorCode::kInvalidArgument, "digest: expected 32 hexadecimal digits, got " + Quote(digest));
  return Version{version.at("lineage").get<std::string>(), version.at("step").get<std::uint64_t>(), *parsed};
}

}  // namespace

std::string AdapterText::ToText() const {
  return OrderedJson{{"base", VersionJson(base)}, {"config", OrderedJson::parse(config.Canonical())}}.dump();
}

AdapterText AdapterText::FromText(const std::string& text) {
  try {
    const OrderedJson parsed = OrderedJson::parse(text);
    return {AdapterConfig::FromJson(parsed.at("config").dump()), BaseFrom(parsed.at("base"))};
  } catch (const OrderedJson::exception& error) {
    throw Error(ErrorCode::kInvalidArgument, "an adapter's configuration in a version: " + std::string(error.what()));
  }
}

std::string WithAdapterTexts(const std::string& config, const std::map<std::string, std::string>& texts) {
  OrderedJson whole = config.empty() ? OrderedJson::object() : OrderedJson::parse(config);
  whole[kAdapters] = texts;
  return whole.dump();
}

std::map<std::string, std::string> AdapterTexts(std::string_view config) {
  const OrderedJson whole = OrderedJson::parse(config, nullptr, /*allow_exceptions=*/false);
  if (!whole.is_object() || !whole.contains(kAdapters) || !whole[kAdapters].is_object()) return {};
  std::map<std::string, std::string> texts;
  for (const auto& [name, text] : whole[kAdapters].items()) {
    if (text.is_string()) texts.emplace(name, text.get<std::string>());
  }
  return texts;
}

void CheckAdapterName(const std::string& name) {
  CheckName("adapter", name);
  if (name.find_first_of("/,* ") == std::string::npos) return;
  throw Error(ErrorCode::kInvalidArgument,
              "adapter " + Quote(name) + ": expected a name without slashes, commas, asterisks and blanks");
}

}  // namespace layercast
