// Logs go to standard error, through spdlog: layercast::log::info("layer {}: {} bytes", ...).
#pragma once

#include <spdlog/spdlog.h>

namespace layercast::log {

using spdlog::debug;
using spdlog::error;
using spdlog::info;
using spdlog::warn;

// Called once by a program's main: standard error, "[layercast:role] level message". A host that links
// the library and sets up spdlog itself need not call it.
void SetUp(const char* role);

}  // namespace layercast::log
