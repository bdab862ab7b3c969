// Log entries with facts that programs read, and the form in which a program writes its log: text for people, or one
// JSON object a line. log.h is what most code needs.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "src/base/log.h"

namespace layercast::log {

// The environment variable by which a program, and those that it starts, know the form: "json", or text.
inline constexpr const char* kFormatVariable = "LAYERCAST_LOG_FORMAT";

// Whether SetUp has found that this program's log is JSON.
bool WritesJson();

// Value.
struct Field {
  std::string_view name;  // a literal
  std::variant<std::string, std::uint64_t, double> value;
};

// In JSON they are the entry's "fields"; in text they stand behind the message, as name=value.
void Write(Level level, std::string_view message, const std::vector<Field>& fields);

// The two forms of an entry.

// "synced bytes=123 peer=tcp://..."
std::string AsText(std::string_view message, const std::vector<Field>& fields);

// One JSON object, without a line break: {"ts", "level", "component", "pid", "message", "fields"}. Names in it are
// escaped as in text, so that it is safe on a terminal too.
std::string AsJson(std::chrono::system_clock::time_point at, std::string_view level, std::string_view component,
                   std::string_view message, const std::vector<Field>& fields);

}  // namespace layercast::log
