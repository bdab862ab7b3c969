// One run of the loop: publish, sync, sample, check, update. The engine serves FP8; the policy trains in full
// precision.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "examples/rl_loop/grpo.h"
#include "examples/rl_loop/history.h"
#include "examples/rl_loop/policy.h"
#include "examples/rl_loop/task.h"

namespace rl_loop {

// What travels to the engine before each step.
enum class Travels {
  kWeights,
  kAdapter,  // a LoRA adapter, which alone learns
  kNothing,  // the engine keeps serving what it started with
};

struct LoopOptions {
  TaskKind task = TaskKind::kCopy;
  std::uint64_t seed = 1;
  int prompts = 32;  // for each update
  GrpoOptions grpo;
  Travels travels = Travels::kWeights;
  LoraConfig lora;
  int tp_size = 2;
  std::filesystem::path program;  // the path of `layercast`
  std::filesystem::path folder;   // the first checkpoint is written here
};

// Called after every step, with the history so far.
using Progress = std::function<void(const RunHistory& history)>;

// Throws if anything is wrong: an answer comes from another version than the newest, or the served bytes are not the
// trainer's weights, quantized.
RunHistory RunLoop(const LoopOptions& options, const Progress& progress);

}  // namespace rl_loop
