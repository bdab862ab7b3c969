// --log-format, which the subcommands have that run until they are ended.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <string>

#include "cli/arguments/arguments.h"
#include "src/base/log_entry.h"

namespace layercast::cli {

// What is given holds for the processes that the program starts too, which is why it becomes their environment's. It is
// set while the command line is parsed, before there is a log or a thread.
inline void DeclareLogFormat(CLI::App& app) {
  app.add_option_function<std::string>(
         "--log-format", [](const std::string& format) { ::setenv(log::kFormatVariable, format.c_str(), 1); },
         "How the log on standard error is written: for people, or one JSON object a line; by default "
         "LAYERCAST_LOG_FORMAT, or text")
      ->check(OneOf({"text", "json"}));
}

}  // namespace layercast::cli
