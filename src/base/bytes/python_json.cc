#include "src/base/bytes/python_json.h"

namespace layercast {
namespace {

constexpr std::string_view kBareFloats[] = {"NaN", "Infinity", "-Infinity"};

// The float that `text` begins with; empty if it begins with none.
std::string_view FloatAt(std::string_view text) {
  for (const std::string_view name : kBareFloats) {
    if (text.starts_with(name)) return name;
  }
  return {};
}

}  // namespace

std::string WithoutBareFloats(std::string_view text) {
  std::string json;
  json.reserve(text.size());
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::string_view name = in_string ? std::string_view() : FloatAt(text.substr(i));
    if (!name.empty()) {
      json.append("{\"").append(kFloatKey).append("\":\"").append(name).append("\"}");
      i += name.size() - 1;
      continue;
    }
    json += text[i];
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\' && i + 1 < text.size()) json += text[++i];
  }
  return json;
}

}  // namespace layercast
