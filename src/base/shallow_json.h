// JSON that nobody vouches for: what a library builds of it is copied, dumped and compared by recursion, so that its
// levels are bounded. Used for models' configurations and for messages.
#pragma once

#include <nlohmann/json.hpp>
#include <string_view>

namespace layercast {

inline constexpr int kDeepestJson = 32;  // neither a configuration nor a message of ours comes near it

// Discarded (is_discarded) if `text` has more levels than kDeepestJson, or is not JSON; of that the library's own
// exception tells where `throws_parse_error`. `Json`: a nlohmann::basic_json.
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
