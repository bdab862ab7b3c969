#include "cli/rank_program.h"

#include <malloc.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "cli/open_files.h"
#include "src/base/log.h"

namespace layercast {
namespace {

void Declare(CLI::App& app, RankOptions& options, std::string& commit, std::string& expert_placement) {
  app.add_option("--model", options.model)->required();
  app.add_option("--draft", options.draft);
  app.add_option("--tp-rank", options.tp_rank)->required();
  app.add_option("--tp", options.tp_size)->required();
  app.add_option("--pp-rank", options.pp_rank)->required();
  app.add_option("--pp", options.pp_size)->required();
  app.add_option("--pp-layers", options.pp_layers);
  app.add_flag("--expert-parallel", options.expert_parallel);
  app.add_option("--expert-placement", expert_placement)->required();
  app.add_option("--quantization", options.recipe)->required();
  app.add_flag("--power-of-two-scales", options.power_of_two_scales);
  app.add_flag("--requantize", options.requantize);
  app.add_flag("--input-scales", options.scales.inputs);
  app.add_flag("--kv-cache-scales", options.scales.kv_cache);
  app.add_option("--weight-rules", options.weight_rules);
  app.add_option("--chunk-bytes", options.chunk_bytes)->required();
  app.add_option("--buffer-limit", options.buffer_limit)->required();
  app.add_option("--channel", options.channel);
  app.add_option("--relay", options.relay);
  app.add_flag("--allow-remote", options.allow_remote);
  app.add_option("--commit", commit)->required();
  app.add_option("--max-num-seqs", options.max_num_seqs)->required();
  app.add_option("--max-model-len", options.max_model_len)->required();
  app.add_option("--engine", options.engine)->required();
  app.add_option("--link-fd", options.link_fd)->required();
  app.add_option("--weights-fd", options.weights_fd)->required();
  app.add_option("--staging-fd", options.staging_fd)->required();
  app.add_option("--version-fd", options.version_fd)->required();
  app.add_option("--model-files-fd", options.model_files_fd)->required();
  app.add_option("--collective-fd", options.collective_fd);
}

// Makes glibc keep freed memory. libzmq allocates memory for every message that it receives. By default glibc gives it
// back to the kernel each time, and the page faults cost more than the copying (docs/transports.md).
void KeepFreedMemory() {
  ::mallopt(M_MMAP_THRESHOLD, 32 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 256 << 20);
}

}  // namespace

int RankMain(int argc, char** argv, const std::function<int(const RankOptions& options)>& run) {
  KeepFreedMemory();
  cli::RaiseOpenFileLimit();
  CLI::App app("One rank of an engine. `layercast serve` starts it.");
  RankOptions options;
  std::string commit;
  std::string expert_placement;
  Declare(app, options, commit, expert_placement);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  const std::string role = "rank" + std::to_string(options.pp_rank * options.tp_size + options.tp_rank);
  log::SetUp(role.c_str());
  try {
    options.commit = CommitPolicyNamed(commit);
    options.expert_placement = ExpertPlacementNamed(expert_placement);
    return run(options);
  } catch (const std::exception& error) {
    log::error("{}", error.what());
    return 1;
  }
}

}  // namespace layercast
