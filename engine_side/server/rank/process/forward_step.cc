#include "engine_side/server/rank/process/forward_step.h"

#include <cstdint>
#include <vector>

#include "engine_side/server/rank/process/pick_token.h"

namespace layercast {
namespace {

// Of [{"sequence", "tokens", "adapter"}]. Not copied, for its steps refer to its tokens.
struct AskedSteps {
  explicit AskedSteps(const Json& asked) {
    tokens.reserve(asked.size());
    for (const Json& step : asked) {
      tokens.push_back(step["tokens"].get<std::vector<std::int32_t>>());
      steps.push_back({.sequence = step["sequence"].get<std::uint64_t>(),
                       .tokens = tokens.back(),
                       .adapter = step.value("adapter", -1)});
    }
  }
  AskedSteps(const AskedSteps&) = delete;
  AskedSteps& operator=(const AskedSteps&) = delete;

  std::vector<std::vector<std::int32_t>> tokens{};
  std::vector<SequenceStep> steps{};
};

}  // namespace

Json ForwardStep(Engine& engine, const ParallelConfig& parallel, const Json& params) {
  const AskedSteps asked(params["steps"]);
  const Logits logits = engine.Forward(asked.steps);
  if (parallel.engine_rank() != parallel.sampling_rank()) return Json::object();
  return {{"picked", PickTokens(logits, params["steps"])}};
}

}  // namespace layercast
