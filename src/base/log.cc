#include "src/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <memory>
#include <string>

namespace layercast::log {

void SetUp(const char* role) {
  auto logger = std::make_shared<spdlog::logger>("layercast", std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%H:%M:%S.%e [" + std::string(role) + "] %l: %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
}

}  // namespace layercast::log
