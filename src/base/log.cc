#include "src/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <string>

namespace layercast::log {
namespace {

constexpr const char* kName = "layercast";

std::shared_ptr<spdlog::logger> ToStandardError(const std::string& role) {
  auto logger = std::make_shared<spdlog::logger>(kName, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%H:%M:%S.%e [" + role + "] %l: %v");
  logger->flush_on(spdlog::level::info);
  return logger;
}

}  // namespace

void SetUp(const char* role) {
  spdlog::drop(kName);
  spdlog::register_logger(ToStandardError(role));
}

std::shared_ptr<spdlog::logger> Logger() {
  if (auto registered = spdlog::get(kName)) return registered;
  static const std::shared_ptr<spdlog::logger> own =
      ToStandardError(kName);  // static, because logs may be written before and after main
  return own;
}

}  // namespace layercast::log
