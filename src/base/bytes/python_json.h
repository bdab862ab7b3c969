// JSON as Python's json module writes it: with NaN, Infinity and -Infinity as values, which no JSON parser reads. Used
// on files that Python's tools write (configurations, indexes), never on messages.
#pragma once

#include <string>
#include <string_view>

#include "src/base/bytes/shallow_json.h"

namespace layercast {

// The one key of the object that stands for such a number: {"__float__": "-Infinity"}, as transformers writes it since
// 5.0. Its value is what Python writes. An object is no number, so whoever needs a number still refuses it.
inline constexpr const char* kFloatKey = "__float__";

// `text` with such an object in the place of each such value outside of strings. Nothing else changes: text that is
// malformed otherwise remains so.
std::string WithoutBareFloats(std::string_view text);
// What Python wrote: "NaN". Empty if the parsed value is no such object.
template <typename Json>
std::string BareFloat(const Json& value) {
  if (!value.is_object() || value.size() != 1 || !value.contains(kFloatKey)) return {};
  const Json& name = value.at(kFloatKey);
  return name.is_string() ? name.template get<std::string>() : std::string();
}

// As ParseShallowJson, for JSON as Python writes it.
template <typename Json>
Json ParsePythonJson(std::string_view text, bool throws_parse_error = false) {
  return ParseShallowJson<Json>(WithoutBareFloats(text), throws_parse_error);
}

// The value as messages show it: what Python wrote, escaped, and shortened past 100 bytes.
template <typename Json>
std::string ShownJson(const Json& value) {
  constexpr std::size_t kMostShown = 100;
  const std::string bare = BareFloat(value);
  std::string shown = bare.empty() ? value.dump(-1, ' ', true, Json::error_handler_t::replace) : bare;
  return shown.size() > kMostShown ? shown.substr(0, kMostShown) + "..." : shown;
}

}  // namespace layercast
