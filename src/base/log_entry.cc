#include "src/base/log_entry.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <ctime>

#include "src/base/utf8.h"

namespace layercast::log {
namespace {

// A JSON string of text without control characters but for line breaks.
std::string Quoted(std::string_view escaped) {
  std::string out = "\"";
  for (const char letter : escaped) {
    if (letter == '\n') {
      out += "\\n";
      continue;
    }
    if (letter == '"' || letter == '\\') out += '\\';
    out += letter;
  }
  return out + '"';
}

std::string Number(double number) { return std::isfinite(number) ? fmt::format("{:.6g}", number) : "null"; }
std::string Number(std::uint64_t number) { return std::to_string(number); }

struct JsonValue {
  std::string operator()(const std::string& text) const { return Quoted(Escaped(text)); }
  std::string operator()(auto number) const { return Number(number); }
};

struct TextValue {
  std::string operator()(const std::string& text) const {
    return text.empty() || text.find(' ') != std::string::npos ? Quote(text) : Escaped(text);
  }
  std::string operator()(auto number) const { return Number(number); }
};

// "2026-11-29T05:57:33.123Z"
std::string Stamp(std::chrono::system_clock::time_point at) {
  const auto since = std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count();
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", fmt::gmtime(static_cast<std::time_t>(since / 1000)), since % 1000);
}

}  // namespace

std::string AsText(std::string_view message, const std::vector<Field>& fields) {
  std::string text(message);
  for (const Field& field : fields) text += " " + std::string(field.name) + "=" + std::visit(TextValue(), field.value);
  return text;
}

std::string AsJson(std::chrono::system_clock::time_point at, std::string_view level, std::string_view component,
                   std::string_view message, const std::vector<Field>& fields) {
  std::string line = "{\"ts\":\"" + Stamp(at) + "\",\"level\":" + Quoted(level) +
                     ",\"component\":" + Quoted(Escaped(component)) + ",\"pid\":" + std::to_string(::getpid()) +
                     ",\"message\":" + Quoted(EscapedMessage(message)) + ",\"fields\":{";
  for (const Field& field : fields) {
    if (&field != fields.data()) line += ',';
    line += Quoted(field.name) + ":" + std::visit(JsonValue(), field.value);
  }
  return line + "}}";
}

}  // namespace layercast::log
