// Test program: the built-in engine's logits, or its greedy tokens, for the oracle in test_forward.py.
//   engine_forward MODEL_DIR RANKS_DIR TP PP RECIPE decoder|step|both   reads one JSON object from standard input:
//     {"prompts": [[1, 2], ...]}               logits of every token, each prompt in steps of a few tokens
//   and writes them to standard output as raw fp32, prompt after prompt; of both, all of the decoder's first.
// RANKS_DIR/rank-R.safetensors hold the kernel tensors of rank R of TP, of all layers: this program loads nothing by
// the pipeline. Each of the PP stages takes those of its layers.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "engine_side/engine/engine.h"
#include "engine_side/engine/rope.h"
#include "engine_side/engine/shared_memory_collective.h"
#include "engine_side/engine/shared_memory_stage_link.h"
#include "engine_side/engine/torch/graph_decoder.h"
#include "layercast/error.h"
#include "layercast/model/registry.h"
#include "layercast/model_description.h"
#include "src/checkpoint/checkpoint.h"

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

Outcome RunRank(const ModelConfig& config, const ParallelConfig& parallel, CollectiveSegment& segment,
                const std::string& recipe, const std::filesystem::path& file, const Prompts& prompts,
                std::string_view computed_by) {
  Outcome outcome;
  try {
    SegmentSeat seat(segment, parallel.engine_rank());
    SharedMemoryCollective collective(seat, parallel, std::chrono::seconds(60));
    SharedMemoryStageLink stage_link(seat, parallel, std::chrono::seconds(60));
    const auto tree = ModelRegistry::Builtin().Build(config, parallel);
    Engine engine(*tree, parallel, *MakeRecipe(recipe), {collective, parallel.pp_size > 1 ? &stage_link : nullptr});
    outcome.filled = Fill(engine, file);
    if (computed_by != "step") outcome.logits = AllLogits(engine, prompts);
    if (computed_by != "decoder") {
      const std::vector<float> logits = AllLogitsByStep(engine, *tree, parallel, prompts);
      outcome.logits.insert(outcome.logits.end(), logits.begin(), logits.end());
    }
  } catch (const std::exception& error) {
    outcome.failure = error.what();
  }
  return outcome;
}

int Run(const std::filesystem::path& model, const std::filesystem::path& ranks, int tp_size, int pp_size,
        const std::string& recipe, std::string_view computed_by) {
  const auto input = nlohmann::json::parse(std::cin);
  const auto prompts = input.at("prompts").get<Prompts>();
  const ModelConfig config = ModelConfig::Parse(ModelDescription::FromDirectory(model));
  const int size = tp_size * pp_size;
  CollectiveSegment segment = CollectiveSegment::Create(size);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(size));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const ParallelConfig parallel{
          .tp_rank = rank % tp_size, .tp_size = tp_size, .pp_rank = rank / tp_size, .pp_size = pp_size};
      outcomes[static_cast<std::size_t>(rank)] =
          RunRank(config, parallel, segment, recipe, FileOf(ranks, parallel.tp_rank), prompts, computed_by);
    });
  }
  threads.clear();
  std::vector<std::set<std::string>> filled(static_cast<std::size_t>(tp_size));
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (!outcomes[rank].failure.empty()) throw Error(ErrorCode::kInternal, outcomes[rank].failure);
    filled[rank % filled.size()].merge(outcomes[rank].filled);
    const bool last_stage = rank + filled.size() >= outcomes.size();
    if (outcomes[rank].logits == (last_stage ? outcomes.back().logits : std::vector<float>())) continue;
    throw Error(ErrorCode::kInternal, "the ranks' logits differ");
  }
  for (int rank = 0; rank < tp_size; ++rank) {
    ExpectAllFilled(FileOf(ranks, rank), filled[static_cast<std::size_t>(rank)]);
  }
  const std::vector<float>& logits = outcomes.back().logits;
  return std::fwrite(logits.data(), sizeof(float), logits.size(), stdout) == logits.size() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view computed_by = argc == 7 ? argv[6] : "";
  if (computed_by != "decoder" && computed_by != "step" && computed_by != "both") {
    std::cerr << "usage: engine_forward MODEL_DIR RANKS_DIR TP PP RECIPE decoder|step|both\n";
    return 2;
  }
  try {
    return Run(argv[1], argv[2], std::stoi(argv[3]), std::stoi(argv[4]), argv[5], computed_by);
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
