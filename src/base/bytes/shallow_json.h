// Parses JSON that is not trusted. The library copies, dumps and compares parsed JSON by recursion, so its depth is
// bounded here. Used for models' configurations and for messages.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace layercast {

inline constexpr int kDeepestJson = 32;  // levels; neither a configuration nor Layercast's messages come near it

// Returns a discarded value (is_discarded) if `text` has more levels than kDeepestJson or is not JSON. If
// `throws_parse_error`, text that is not JSON throws the library's own exception instead. `Json` is a
// nlohmann::basic_json.
template <typename Json>
Json ParseShallowJson(std::string_view text, bool throws_parse_error = false) {
  bool deep = false;
  const auto keep = [&](int depth, typename Json::parse_event_t event, Json& /*parsed*/) {
    const bool opens = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    deep = deep || (opens && depth == kDeepestJson);  // counted from 0
    return !deep;
  };
  Json parsed = Json::parse(text, keep, throws_parse_error);
  return deep ? Json(Json::value_t::discarded) : parsed;
}

}  // namespace layercast
