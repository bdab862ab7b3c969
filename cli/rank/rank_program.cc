#include "cli/rank/rank_program.h"

#include <malloc.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <exception>
#include <string>

#include "cli/arguments/open_files.h"
#include "layercast/error.h"
#include "src/base/log.h"

namespace layercast {
namespace {

void Declare(CLI::App& app, RankOptions& options) {
  EngineOptions& of_engine = options;
  app.add_option_function<std::string>(
         "--options", [&of_engine](const std::string& argument) { of_engine = EngineOptionsFrom(argument); })
      ->required();
  app.add_option("--tp-rank", options.tp_rank)->required();
  app.add_option("--pp-rank", options.pp_rank)->required();
  app.add_option("--link-fd", options.link_fd)->required();
  app.add_option("--weights-fd", options.weights_fd)->required();
  app.add_option("--staging-fd", options.staging_fd)->required();
  app.add_option("--adapters-fd", options.adapters_fd)->required();
  app.add_option("--version-fd", options.version_fd)->required();
  app.add_option("--model-files-fd", options.model_files_fd)->required();
  app.add_option("--collective-fd", options.collective_fd);
}

// Makes glibc keep freed memory until malloc_trim is called, when a reload or the like has ended (rank_process.cc).
// libzmq allocates memory for every message that it receives. By default glibc gives it back to the kernel each time,
// and the page faults cost more than the copying (docs/transports.md). One arena for all threads, because malloc_trim
// leaves the end of every other arena as it is, which is up to 64 MiB.
void KeepFreedMemory() {
  ::mallopt(M_ARENA_MAX, 1);
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

}  // namespace

int RankMain(int argc, char** argv, const std::function<int(const RankOptions& options)>& run) {
  KeepFreedMemory();
  cli::RaiseOpenFileLimit();
  ::signal(SIGHUP, SIG_IGN);  // again: UCX has taken it, for debugging
  CLI::App app("One rank of an engine. `layercast serve` starts it.");
  RankOptions options;
  Declare(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  } catch (const Error& error) {
    log::error("{}", error.what());
    return 2;
  }
  const std::string role = "rank" + std::to_string(options.pp_rank * options.tp_size + options.tp_rank);
  log::SetUp(role.c_str());
  try {
    return run(options);
  } catch (const std::exception& error) {
    log::error("{}", error.what());
    return 1;
  }
}

}  // namespace layercast
