// Logs go to standard error, through spdlog: layercast::log::info("layer {}: {} bytes", ...). A host program that wants
// them elsewhere registers a spdlog logger called "layercast".
#pragma once

#include <memory>
#include <utility>

#include <spdlog/spdlog.h>

namespace layercast::log {

// Called once by a program's main. From then on, lines begin with the time and `role`.
void SetUp(const char* role);

// The logger called "layercast" that the host program registered, or else one to standard error.
std::shared_ptr<spdlog::logger> Logger();

template <typename... Args>
void debug(spdlog::format_string_t<Args...> format, Args&&... args) {
  Logger()->debug(format, std::forward<Args>(args)...);
}
template <typename... Args>
void info(spdlog::format_string_t<Args...> format, Args&&... args) {
  Logger()->info(format, std::forward<Args>(args)...);
}
template <typename... Args>
void warn(spdlog::format_string_t<Args...> format, Args&&... args) {
  Logger()->warn(format, std::forward<Args>(args)...);
}
template <typename... Args>
void error(spdlog::format_string_t<Args...> format, Args&&... args) {
  Logger()->error(format, std::forward<Args>(args)...);
}

}  // namespace layercast::log
