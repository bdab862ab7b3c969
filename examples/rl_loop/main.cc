// rl_loop: a policy in full precision learns from rewards, while two ranks that serve it in FP8 sample its rollouts.
// Every step publishes, syncs and samples from the version just published. Then the same without syncing, to compare.
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "examples/rl_loop/loop.h"
#include "examples/rl_loop/report.h"
#include "examples/support/engine_process.h"

namespace {

rl_loop::RunHistory Run(rl_loop::LoopOptions options, bool sync) {
  options.sync = sync;
  rl_loop::ProgressBar bar(sync ? "syncing    " : "not syncing", options.grpo.updates);
  return RunLoop(options, [&bar](const rl_loop::RunHistory& history) { bar.Show(history); });
}

}  // namespace

int main(int argc, char** argv) try {
  rl_loop::LoopOptions options;
  options.program = examples::ProgramBesideThisOne();
  std::filesystem::path out = "out/rl_loop";
  bool reverse = false;
  CLI::App app("A reinforcement-learning loop whose rollouts come from an FP8 engine behind Layercast");
  app.add_option("--out", out, "Where report.json lands")->capture_default_str();
  app.add_option("--updates", options.grpo.updates, "How many")->check(CLI::Range(1, 10'000))->capture_default_str();
  app.add_option("--seed", options.seed, "Of weights, prompts and samples")->capture_default_str();
  app.add_option("--tp", options.tp_size, "Ranks of the engine")->check(CLI::IsMember({1, 2}))->capture_default_str();
  app.add_option("--layercast", options.program, "The program")->capture_default_str();
  app.add_flag("--reverse", reverse, "Learn to reverse the digits instead of copying them");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (reverse) options.task = rl_loop::TaskKind::kReverse;
  options.folder = out / "untrained";
  at::set_num_threads(1);  // matrices this small gain nothing from more

  const rl_loop::RunHistory synced = Run(options, true);
  const rl_loop::RunHistory unsynced = Run(options, false);
  WriteReport(synced, unsynced, out / "report.json");
  std::printf("\n%s\nreward on held-out prompts: %.3f untrained, %.3f after %d updates; %.3f without syncing\n",
              Table(synced).c_str(), synced.steps.front().held_out_reward, synced.steps.back().held_out_reward,
              options.grpo.updates, unsynced.steps.back().held_out_reward);
  std::printf("every sync: served bytes equal the trainer's weights, quantized. Report: %s\n",
              (out / "report.json").c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "\nrl_loop: %s\n", error.what());
  return 1;
}
