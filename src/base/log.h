// Logs go to standard error, through spdlog: layercast::log::info("layer {}: {} bytes", ...). A host program that wants
// them elsewhere registers a spdlog logger called "layercast".
#pragma once

#include <fmt/core.h>

#include <cstdint>

namespace layercast::log {

// Called once by a program's main. From then on, lines begin with the time and `role`.
void SetUp(const char* role);

enum class Level : std::uint8_t { kDebug, kInfo, kWarn, kError };

// Writes to the logger called "layercast" that the host program registered, or else to one of standard error. Arguments
// are formatted only if the logger takes entries of that level; what fails at that is spdlog's to report.
void Write(Level level, fmt::string_view format, fmt::format_args arguments);

template <typename... Args>
void debug(fmt::format_string<Args...> format, const Args&... args) {
  Write(Level::kDebug, format, fmt::make_format_args(args...));
}
template <typename... Args>
void info(fmt::format_string<Args...> format, const Args&... args) {
  Write(Level::kInfo, format, fmt::make_format_args(args...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> format, const Args&... args) {
  Write(Level::kWarn, format, fmt::make_format_args(args...));
}
template <typename... Args>
void error(fmt::format_string<Args...> format, const Args&... args) {
  Write(Level::kError, format, fmt::make_format_args(args...));
}

}  // namespace layercast::log
