// The steps of a forward pass, as the call `step` asks for them. Used by the rank's process.
#pragma once

#include <cstdint>
#include <vector>

#include "engine_side/engine/forward_pass.h"
#include "src/control/json_forms.h"

namespace layercast {

// Value; not copied, for its steps refer to its tokens.
struct StepRequest {
  // Of [{"sequence", "tokens", "adapter"}]. Throws Json::exception.
  explicit StepRequest(const Json& asked) {
    tokens.reserve(asked.size());
    for (const Json& step : asked) {
      tokens.push_back(step["tokens"].get<std::vector<std::int32_t>>());
      steps.push_back({.sequence = step["sequence"].get<std::uint64_t>(),
                       .tokens = tokens.back(),
                       .adapter = step.value("adapter", -1)});
    }
  }
  StepRequest(const StepRequest&) = delete;
  StepRequest& operator=(const StepRequest&) = delete;

  std::vector<std::vector<std::int32_t>> tokens{};
  std::vector<SequenceStep> steps{};
};

}  // namespace layercast
