// rl_loop: a policy in full precision learns from rewards, while two ranks that serve it in FP8 sample its rollouts.
// Every step publishes, syncs and samples from the version just published. Then the same without syncing, to compare;
// with --lora also with an adapter, which alone learns and travels.
#include <ATen/Parallel.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <string>

#include "examples/rl_loop/loop.h"
#include "examples/rl_loop/report.h"
#include "examples/support/engine_process.h"

namespace {

constexpr double kAdapterLearningRate = 1e-2;  // factors start at zero, and bear more than weights

rl_loop::RunHistory Run(rl_loop::LoopOptions options, rl_loop::Travels travels, const char* title) {
  options.travels = travels;
  if (travels == rl_loop::Travels::kAdapter) options.grpo.learning_rate = kAdapterLearningRate;
  rl_loop::ProgressBar bar(title, options.grpo.updates);
  return RunLoop(options, [&bar](const rl_loop::RunHistory& history) { bar.Show(history); });
}

}  // namespace

int main(int argc, char** argv) try {
  rl_loop::LoopOptions options;
  options.program = examples::ProgramBesideThisOne();
  std::filesystem::path out = "out/rl_loop";
  bool reverse = false;
  bool lora = false;
  CLI::App app("A reinforcement-learning loop whose rollouts come from an FP8 engine behind Layercast");
  app.add_option("--out", out, "Where report.json lands")->capture_default_str();
  app.add_option("--updates", options.grpo.updates, "How many")->check(CLI::Range(1, 10'000))->capture_default_str();
  app.add_option("--seed", options.seed, "Of weights, prompts and samples")->capture_default_str();
  app.add_option("--tp", options.tp_size, "Ranks of the engine")->check(CLI::IsMember({1, 2}))->capture_default_str();
  app.add_option("--layercast", options.program, "The program")->capture_default_str();
  app.add_flag("--reverse", reverse, "Learn to reverse the digits instead of copying them");
  app.add_flag("--lora", lora, "Then the same with a LoRA adapter, which alone learns and travels");
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (reverse) options.task = rl_loop::TaskKind::kReverse;
  options.folder = out / "untrained";
  at::set_num_threads(1);  // matrices this small gain nothing from more

  rl_loop::Runs runs{.synced = Run(options, rl_loop::Travels::kWeights, "syncing    "),
                     .unsynced = Run(options, rl_loop::Travels::kNothing, "not syncing"),
                     .adapter = {}};
  if (lora) runs.adapter = Run(options, rl_loop::Travels::kAdapter, "adapter    ");
  WriteReport(runs, out / "report.json");
  std::printf("\n%s\n%s", Table(runs).c_str(), Summary(runs).c_str());
  std::printf("every sync: served bytes equal the trainer's weights, quantized. Report: %s\n",
              (out / "report.json").c_str());
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "\nrl_loop: %s\n", error.what());
  return 1;
}
