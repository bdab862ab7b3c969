#include "engine_side/server/rank/process/forward_step.h"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "engine_side/server/rank/process/pick_token.h"

namespace layercast {

Json ForwardStep(Engine& engine, const ParallelConfig& parallel, const Json& params) {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<SequenceStep> steps;
  for (const Json& step : params["steps"]) tokens.push_back(step["tokens"].get<std::vector<std::int32_t>>());
  for (const Json& step : params["steps"]) {
    steps.push_back({.sequence = step["sequence"].get<std::uint64_t>(),
                     .tokens = tokens[steps.size()],
                     .adapter = step.value("adapter", -1)});
  }
  const Logits logits = engine.Forward(steps);
  if (parallel.engine_rank() != parallel.sampling_rank()) return Json::object();
  Json picked = Json::array();
  for (std::size_t row = 0; row < logits.rows(); ++row) {
    picked.push_back(PickToken(logits.row(row), params["steps"][row]));
  }
  return {{"picked", std::move(picked)}};
}

}  // namespace layercast
