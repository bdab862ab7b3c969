// Test program: the built-in engine's logits of every token, for the oracle in test_forward.py. A request is one line
// of JSON on standard input:
//   {"model": FOLDER, "ranks": FOLDER, "tp_size": 1, "pp_size": 1, "recipe": "none",
//    "computed_by": "decoder" | "step" | "both", "prompts": [[1, 2], ...]}
// The answer is one line on standard output, {"error": "..."}, or {"bytes": N} before N bytes of logits: raw fp32,
// prompt after prompt, each computed in steps of a few tokens; of both, all of the decoder's first.
// rank-R.safetensors in `ranks` hold the kernel tensors of rank R of tp_size, of all layers: this program loads nothing
// by the pipeline. Each of the stages takes those of its layers.
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine_side/engine/built_in/engine.h"
#include "engine_side/engine/built_in/rope.h"
#include "engine_side/engine/ranks/shared_memory_collective.h"
#include "engine_side/engine/ranks/shared_memory_stage_link.h"
#include "engine_side/engine/torch/graph_decoder.h"
#include "engine_side/quant/recipes/recipe_table.h"
#include "layercast/error.h"
#include "layercast/memory.h"
#include "layercast/model/registry.h"
#include "layercast/model_description.h"
#include "src/checkpoint/formats/checkpoint.h"

namespace {

using namespace layercast;
using Prompts = std::vector<std::vector<std::int32_t>>;

std::filesystem::path FileOf(const std::filesystem::path& ranks, int tp_rank) {
  return ranks / ("rank-" + std::to_string(tp_rank) + ".safetensors");
}

// Returns the names of what it has filled.
std::set<std::string> Fill(const Engine& engine, const std::filesystem::path& file) {
  const Checkpoint kernel_tensors = Checkpoint::Open(file);
  std::set<std::string> filled;
  for (const CapturedBuffer& buffer : engine.Buffers()) {
    const NamedTensor tensor = kernel_tensors.Tensor(buffer.name);
    if (tensor.tensor.dtype != buffer.dtype || tensor.tensor.shape != buffer.shape) {
      throw Error(ErrorCode::kInvalidArgument, buffer.name + ": the engine has " +
                                                   Describe(buffer.dtype, buffer.shape) + ", expected " +
                                                   Describe(tensor.tensor.dtype, tensor.tensor.shape));
    }
    std::memcpy(buffer.address, tensor.tensor.data, static_cast<std::size_t>(tensor.tensor.num_bytes()));
    filled.insert(buffer.name);
  }
  return filled;
}

// The stages together have every tensor of the file.
void ExpectAllFilled(const std::filesystem::path& file, const std::set<std::string>& filled) {
  const std::size_t expected = Checkpoint::Open(file).specs().size();
  if (filled.size() == expected) return;
  throw Error(ErrorCode::kInvalidArgument,
              "the engine has " + std::to_string(filled.size()) + " buffers, expected " + std::to_string(expected));
}

// All prompts side by side, each in steps of 1, 2, 3, ... tokens, so that prefill, decode and batching are all in it.
template <class ForwardPass>
std::vector<float> AllLogits(ForwardPass& pass, const Prompts& prompts) {
  std::vector<std::vector<float>> rows(prompts.size());
  std::size_t begin = 0;
  for (std::size_t count = 1;; ++count) {
    std::vector<SequenceStep> steps;
    std::vector<std::size_t> of_step;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      if (begin >= prompts[i].size()) continue;
      const std::span<const std::int32_t> rest = std::span(prompts[i]).subspan(begin);
      steps.push_back({i, rest.first(std::min(count, rest.size())), true});
      of_step.insert(of_step.end(), steps.back().tokens.size(), i);
    }
    if (steps.empty()) break;
    const Logits logits = pass.Forward(steps);
    for (std::size_t r = 0; r < logits.rows(); ++r) {
      const auto row = logits.row(r);
      rows[of_step[r]].insert(rows[of_step[r]].end(), row.begin(), row.end());
    }
    begin += count;
  }
  std::vector<float> all;
  for (const auto& of_prompt : rows) all.insert(all.end(), of_prompt.begin(), of_prompt.end());
  return all;
}

// The same by the step in tensors, on the same buffers: of few rows, so that some have several of one prompt, and rows
// that are not used.
std::vector<float> AllLogitsByStep(const Engine& engine, const Module& tree, const ParallelConfig& parallel,
                                   const Prompts& prompts) {
  const StepShape shape{.rows = 7, .slots = static_cast<std::int64_t>(prompts.size())};
  GraphDecoder decoder(tree, parallel, engine.Buffers(), MakeRope, shape);
  return AllLogits(decoder, prompts);
}

// What one rank has come to.
struct Outcome {
  std::set<std::string> filled;
  std::vector<float> logits;
  std::string failure;
};

struct Request {
  ModelConfig config;
  std::filesystem::path ranks;
  int tp_size = 1;
  int pp_size = 1;
  std::string recipe;
  std::string computed_by;
  Prompts prompts;
};

Request Parse(const std::string& line) {
  const auto json = nlohmann::json::parse(line);
  return {.config = ModelConfig::Parse(ModelDescription::FromDirectory(json.at("model").get<std::string>())),
          .ranks = json.at("ranks").get<std::string>(),
          .tp_size = json.at("tp_size"),
          .pp_size = json.at("pp_size"),
          .recipe = json.at("recipe"),
          .computed_by = json.at("computed_by"),
          .prompts = json.at("prompts").get<Prompts>()};
}

// The seat is kept, unless the rank fails: a rank that leaves ends the waits of all others, and those of later stages
// still compute when the first stage is through.
Outcome RunRank(const Request& request, const ParallelConfig& parallel, CollectiveSegment& segment,
                std::optional<SegmentSeat>& seat) {
  Outcome outcome;
  try {
    seat.emplace(segment, parallel.engine_rank());
    SharedMemoryCollective collective(*seat, parallel, std::chrono::seconds(60));
    SharedMemoryStageLink stage_link(*seat, parallel, std::chrono::seconds(60));
    const auto tree = ModelRegistry::Builtin().Build(request.config, parallel);
    HostMemory memory;
    Engine engine(*tree, parallel, *MakeRecipe(request.recipe), memory,
                  Peers{collective, parallel.pp_size > 1 ? &stage_link : nullptr});
    outcome.filled = Fill(engine, FileOf(request.ranks, parallel.tp_rank));
    if (request.computed_by != "step") outcome.logits = AllLogits(engine, request.prompts);
    if (request.computed_by != "decoder") {
      const std::vector<float> logits = AllLogitsByStep(engine, *tree, parallel, request.prompts);
      outcome.logits.insert(outcome.logits.end(), logits.begin(), logits.end());
    }
  } catch (const std::exception& error) {
    outcome.failure = error.what();
    seat.reset();
  }
  return outcome;
}

// By engine rank, each on a thread of its own.
std::vector<Outcome> RunRanks(const Request& request) {
  const int size = request.tp_size * request.pp_size;
  CollectiveSegment segment = CollectiveSegment::Create(size);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(size));
  std::vector<std::optional<SegmentSeat>> seats(static_cast<std::size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const ParallelConfig parallel{.tp_rank = rank % request.tp_size,
                                    .tp_size = request.tp_size,
                                    .pp_rank = rank / request.tp_size,
                                    .pp_size = request.pp_size};
      const auto index = static_cast<std::size_t>(rank);
      outcomes[index] = RunRank(request, parallel, segment, seats[index]);
    });
  }
  threads.clear();
  return outcomes;
}

std::vector<float> LogitsOf(const Request& request) {
  const std::vector<Outcome> outcomes = RunRanks(request);
  const auto tp_size = static_cast<std::size_t>(request.tp_size);
  std::vector<std::set<std::string>> filled(tp_size);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (!outcomes[rank].failure.empty()) throw Error(ErrorCode::kInternal, outcomes[rank].failure);
    filled[rank % tp_size].insert(outcomes[rank].filled.begin(), outcomes[rank].filled.end());
    const bool last_stage = rank + tp_size >= outcomes.size();
    if (outcomes[rank].logits == (last_stage ? outcomes.back().logits : std::vector<float>())) continue;
    throw Error(ErrorCode::kInternal, "the ranks' logits differ");
  }
  for (int rank = 0; rank < request.tp_size; ++rank) {
    ExpectAllFilled(FileOf(request.ranks, rank), filled[static_cast<std::size_t>(rank)]);
  }
  return outcomes.back().logits;
}

void Answer(const std::string& line) {
  std::vector<float> logits;
  try {
    logits = LogitsOf(Parse(line));
  } catch (const std::exception& error) {
    std::cout << nlohmann::json{{"error", error.what()}} << std::endl;
    return;
  }
  const std::span<const std::byte> bytes = std::as_bytes(std::span(logits));
  std::cout << nlohmann::json{{"bytes", bytes.size()}} << "\n";
  std::cout.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size())).flush();
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) Answer(line);
}
