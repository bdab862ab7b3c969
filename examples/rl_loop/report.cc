#include "examples/rl_loop/report.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

namespace rl_loop {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kBarWidth = 30;
constexpr int kStages = 7;
constexpr const char* kStageNames[kStages] = {"receive",  "layer_buffer", "materialize", "fuse_and_shard",
                                              "quantize", "verify",       "commit"};

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

template <typename Read>
double MedianOf(const RunHistory& history, const Read& read) {
  std::vector<double> values;
  for (const StepRecord& step : history.steps) values.push_back(read(step));
  return Median(std::move(values));
}

double StageMs(const SyncRecord& sync, const std::string& stage) {
  const auto found = sync.stage_ms.find(stage);
  return found == sync.stage_ms.end() ? 0 : found->second;
}

// Medians over the run.
Json SyncSummary(const RunHistory& history) {
  Json stages;
  for (const char* stage : kStageNames) {
    stages[stage] = MedianOf(history, [&](const StepRecord& step) { return StageMs(step.sync, stage); });
  }
  return {{"count", history.steps.size()},
          {"channel", history.steps.back().sync.channel},
          {"publish_ms", MedianOf(history, [](const StepRecord& step) { return step.sync.publish_ms; })},
          {"total_ms", MedianOf(history, [](const StepRecord& step) { return step.sync.total_ms; })},
          {"stage_ms", stages},
          {"bytes", history.steps.back().sync.bytes},
          {"gb_per_s", MedianOf(history, [](const StepRecord& step) { return step.sync.gb_per_s; })}};
}

Json StepJson(const StepRecord& step, bool synced) {
  Json json = {{"step", step.step},
               {"held_out_reward", step.held_out_reward},
               {"training_reward", step.training_reward},
               {"entropy", step.update.entropy},
               {"logprob_gap", step.update.logprob_gap}};
  if (!synced) return json;
  json["publish_ms"] = step.sync.publish_ms;
  json["total_ms"] = step.sync.total_ms;
  json["stage_ms"] = step.sync.stage_ms;
  return json;
}

Json Steps(const RunHistory& history, bool synced) {
  Json steps = Json::array();
  for (const StepRecord& step : history.steps) steps.push_back(StepJson(step, synced));
  return steps;
}

double LastReward(const RunHistory& history) { return history.steps.back().held_out_reward; }

std::string SyncLine(const char* what, const RunHistory& history) {
  const Json sync = SyncSummary(history);
  std::ostringstream out;
  out << std::fixed << std::setprecision(2) << std::left << std::setw(20) << what << std::right << std::setw(10)
      << sync["bytes"].get<std::uint64_t>() << std::setw(13) << sync["publish_ms"].get<double>() << std::setw(12)
      << sync["total_ms"].get<double>() << '\n';
  return out.str();
}

std::string TableOf(const RunHistory& history) {
  std::ostringstream out;
  out << std::fixed
      << "  step  reward  entropy      gap | sync ms; within it receive   buffer  material.     fuse quantize"
      << "   verify   commit |   bytes   GB/s\n";
  const std::size_t every = std::max<std::size_t>(1, (history.steps.size() + 11) / 12);
  for (std::size_t i = 0; i < history.steps.size(); ++i) {
    if (i % every != 0 && i + 1 != history.steps.size()) continue;
    const StepRecord& step = history.steps[i];
    out << std::setw(6) << step.step << std::setprecision(3) << std::setw(8) << step.held_out_reward;
    if (i + 1 == history.steps.size()) {
      out << std::setw(9) << "-" << std::setw(9) << "-";  // no update follows
    } else {
      out << std::setw(9) << step.update.entropy << std::setprecision(5) << std::setw(9) << step.update.logprob_gap;
    }
    out << " |" << std::setprecision(2) << std::setw(8) << step.sync.total_ms << std::setprecision(3);
    constexpr int kWidths[kStages] = {19, 9, 11, 9, 9, 9, 9};
    for (int stage = 0; stage < kStages; ++stage) {
      out << std::setw(kWidths[stage]) << StageMs(step.sync, kStageNames[stage]);
    }
    out << " |" << std::setw(8) << step.sync.bytes << std::setprecision(2) << std::setw(7) << step.sync.gb_per_s
        << '\n';
  }
  return out.str();
}

}  // namespace

ProgressBar::ProgressBar(std::string title, int steps)
    : title_(std::move(title)), steps_(steps), terminal_(::isatty(STDERR_FILENO) == 1) {}

void ProgressBar::Show(const RunHistory& history) {
  const StepRecord& step = history.steps.back();
  const bool last = step.step == steps_;  // no update follows the last step, which shows the entropy of the one before
  const UpdateReport& update = last && step.step > 0 ? history.steps[history.steps.size() - 2].update : step.update;
  if (!terminal_ && !last && step.step % 10 != 0) return;
  std::string bar;
  const int done = steps_ == 0 ? kBarWidth : kBarWidth * step.step / steps_;
  for (int i = 0; i < kBarWidth; ++i) bar += i < done ? '#' : '.';
  std::fprintf(stderr, "%s%s [%s] %3d/%d  reward %.3f  entropy %.3f  sync %5.1f ms  %5.1f s%s", terminal_ ? "\r" : "",
               title_.c_str(), bar.c_str(), step.step, steps_, step.held_out_reward, update.entropy, step.sync.total_ms,
               history.seconds, terminal_ && !last ? "" : "\n");
  std::fflush(stderr);
}

std::string Table(const Runs& runs) {
  return TableOf(runs.synced) + (runs.adapter ? "\nwith an adapter alone\n" + TableOf(*runs.adapter) : "");
}

std::string Summary(const Runs& runs) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(3)
      << "reward on held-out prompts: " << runs.synced.steps.front().held_out_reward << " untrained, "
      << LastReward(runs.synced) << " after " << runs.synced.steps.back().step << " updates; "
      << LastReward(runs.unsynced) << " without syncing";
  if (runs.adapter) out << "; " << LastReward(*runs.adapter) << " with an adapter alone";
  out << "\none sync (medians)      bytes   publish ms   engine ms\n" << SyncLine("all weights", runs.synced);
  if (runs.adapter) out << SyncLine("the adapter", *runs.adapter);
  return out.str();
}

void WriteReport(const Runs& runs, const std::filesystem::path& file) {
  Json report = {{"reward_first", runs.synced.steps.front().held_out_reward},
                 {"reward_last", LastReward(runs.synced)},
                 {"reward_last_without_sync", LastReward(runs.unsynced)},
                 {"steps", runs.synced.steps.back().step},
                 {"seconds", runs.synced.seconds + runs.unsynced.seconds + (runs.adapter ? runs.adapter->seconds : 0)},
                 {"sync", SyncSummary(runs.synced)},
                 {"history", Steps(runs.synced, true)},
                 {"history_without_sync", Steps(runs.unsynced, false)}};
  if (runs.adapter) {
    report["reward_last_with_adapter"] = LastReward(*runs.adapter);
    report["adapter_sync"] = SyncSummary(*runs.adapter);
    report["history_with_adapter"] = Steps(*runs.adapter, true);
  }
  std::ofstream out(file);
  out << report.dump(2) << '\n';
  out.close();
  if (!out) throw std::runtime_error("cannot write " + file.string());
}

}  // namespace rl_loop
