#include "engine_side/model/config/config_fields.h"

#include <cmath>
#include <limits>
#include <utility>

#include "layercast/error.h"
#include "src/base/bytes/python_json.h"

namespace layercast {
namespace {

// Whether the value is an integer that fits std::int64_t; JSON has larger ones.
bool IsInteger(const nlohmann::json& value) {
  if (value.is_number_unsigned()) return value.get<std::uint64_t>() <= std::numeric_limits<std::int64_t>::max();
  return value.is_number_integer();
}

// A number that may be infinite.
std::optional<double> NumberOf(const nlohmann::json& value) {
  if (value.is_number()) return value.get<double>();
  const std::string name = BareFloat(value);
  if (name != "Infinity" && name != "-Infinity") return std::nullopt;
  return name == "Infinity" ? std::numeric_limits<double>::infinity() : -std::numeric_limits<double>::infinity();
}

}  // namespace

nlohmann::json ParseConfigText(std::string_view text, const std::string& file) {
  const auto refuse = [&](const std::string& why) { throw Error(ErrorCode::kInvalidArgument, file + ": " + why); };
  nlohmann::json parsed;
  try {
    parsed = ParsePythonJson<nlohmann::json>(text, true);
  } catch (const nlohmann::json::exception& error) {
    refuse(std::string("is not JSON: ") + error.what());
  }
  if (parsed.is_discarded()) refuse("has more than " + std::to_string(kDeepestJson) + " levels");
  return parsed;
}

ConfigFields::ConfigFields(nlohmann::json object, std::string where, std::string file)
    : object_(std::move(object)), where_(std::move(where)), file_(std::move(file)) {
  const std::string bare = BareFloat(object_);
  if (object_.is_object() && bare.empty()) return;
  if (where_.empty()) RefuseFile("expected an object, got " + (bare.empty() ? object_.type_name() : bare));
  where_.pop_back();  // the dot
  Refuse("", "an object", object_);
}

ConfigFields ConfigFields::Of(const ModelConfig& config) {
  ConfigFields fields(nlohmann::json::parse(config.json));
  fields.on_field_ = config.on_field;
  return fields;
}

template <class Value>
Value ConfigFields::Noted(std::string_view name, Value value) const {
  if (on_field_) on_field_(NameOf(name), nlohmann::json(value).dump());
  return value;
}

const nlohmann::json* ConfigFields::Find(std::string_view name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::optional<std::int64_t> ConfigFields::FindInteger(std::string_view name, std::int64_t least,
                                                      std::int64_t most) const {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return std::nullopt;
  if (!IsInteger(*value) || value->get<std::int64_t>() < least || value->get<std::int64_t>() > most) {
    Refuse(name, "an integer from " + std::to_string(least) + " to " + std::to_string(most), *value);
  }
  return value->get<std::int64_t>();
}

std::optional<std::int64_t> ConfigFields::Integer(std::string_view name, std::int64_t least, std::int64_t most) const {
  const std::optional<std::int64_t> value = FindInteger(name, least, most);
  if (value) static_cast<void>(Noted(name, *value));
  return value;
}

std::int64_t ConfigFields::Size(std::string_view name, std::optional<std::int64_t> otherwise, std::int64_t most) const {
  const std::optional<std::int64_t> value = FindInteger(name, 1, most);
  if (!value && !otherwise) RefuseFile(NameOf(name) + " is missing");
  return Noted(name, value ? *value : *otherwise);
}

double ConfigFields::Number(std::string_view name, double otherwise) const {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return Noted(name, otherwise);
  if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() <= 0.0) {
    Refuse(name, "a number above 0", *value);
  }
  return Noted(name, value->get<double>());
}

double ConfigFields::NumberFrom(std::string_view name, double least, double otherwise) const {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return Noted(name, otherwise);
  if (!value->is_number() || !std::isfinite(value->get<double>()) || value->get<double>() < least) {
    Refuse(name, "a number of at least " + nlohmann::json(static_cast<std::int64_t>(least)).dump(), *value);
  }
  return Noted(name, value->get<double>());
}

bool ConfigFields::Flag(std::string_view name, bool otherwise) const {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return Noted(name, otherwise);
  if (!value->is_boolean()) Refuse(name, "true or false", *value);
  return Noted(name, value->get<bool>());
}

std::string ConfigFields::Text(std::string_view name, std::string_view otherwise) const {
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return Noted(name, std::string(otherwise));
  if (!value->is_string()) Refuse(name, "a text", *value);
  return Noted(name, value->get<std::string>());
}

std::vector<std::string> ConfigFields::Texts(std::string_view name) const {
  std::vector<std::string> texts;
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return texts;
  if (!value->is_array()) Refuse(name, "a list of names", *value);
  for (const nlohmann::json& item : *value) {
    if (!item.is_string()) Refuse(name, "a list of names", *value);
    texts.push_back(item.get<std::string>());
  }
  return Noted(name, std::move(texts));
}

std::vector<std::int64_t> ConfigFields::Integers(std::string_view name) const {
  std::vector<std::int64_t> integers;
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return integers;
  const auto add = [&](const nlohmann::json& item) {
    if (!IsInteger(item)) Refuse(name, "an integer or a list of integers", *value);
    integers.push_back(item.get<std::int64_t>());
  };
  if (!value->is_array()) {
    add(*value);
  } else {
    for (const nlohmann::json& item : *value) add(item);
  }
  return Noted(name, std::move(integers));
}

std::vector<double> ConfigFields::Numbers(std::string_view name) const {
  std::vector<double> numbers;
  const nlohmann::json* value = Find(name);
  if (value == nullptr) return numbers;
  if (!value->is_array()) Refuse(name, "a list of numbers", *value);
  for (const nlohmann::json& item : *value) {
    const std::optional<double> number = NumberOf(item);
    if (!number) Refuse(name, "a list of numbers", *value);
    numbers.push_back(*number);
  }
  return Noted(name, std::move(numbers));
}

void ConfigFields::Refuse(std::string_view name, std::string_view expected, const nlohmann::json& got) const {
  RefuseFile(Mismatch(name, expected, got));
}

std::string ConfigFields::Mismatch(std::string_view name, std::string_view expected, const nlohmann::json& got) const {
  return NameOf(name) + ": expected " + std::string(expected) + ", got " + ShownJson(got);
}

void ConfigFields::Refuse(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, kConfigFile + (": " + message));
}

void ConfigFields::RefuseFile(const std::string& message) const {
  throw Error(ErrorCode::kInvalidArgument, file_ + ": " + message);
}

}  // namespace layercast
