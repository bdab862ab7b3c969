// The record of a run of the loop, update by update. Values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "examples/rl_loop/grpo.h"

namespace rl_loop {

// How the engine was brought to what was just published, as its report says.
struct SyncRecord {
  double publish_ms = 0;  // of the trainer, to make the snapshot
  double total_ms = 0;    // from the controller's call until all ranks serve it
  std::map<std::string, double> stage_ms;
  std::uint64_t bytes = 0;
  std::string channel;
  double gb_per_s = 0;
};

struct StepRecord {
  int step = 0;                // updates done before these rollouts
  double held_out_reward = 0;  // as the engine samples, at temperature 1
  double training_reward = 0;
  UpdateReport update;  // of the update that follows; zero in the last record
  SyncRecord sync;      // before the rollouts; zero where nothing travels
};

struct RunHistory {
  std::vector<StepRecord> steps;
  double seconds = 0;
};

// What is compared: the same policy and task, with other things that travel.
struct Runs {
  RunHistory synced;
  RunHistory unsynced;
  std::optional<RunHistory> adapter;
};

}  // namespace rl_loop
