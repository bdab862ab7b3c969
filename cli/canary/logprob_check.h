// How likely an engine finds its own answers to given prompts: by which `reload --check-logprobs` compares a canary's
// version with the one before it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "layercast/controller.h"
#include "layercast/error.h"

namespace layercast::cli {

// Value.
class LogprobCheck {
 public:
  // `path` has a prompt on each line, "3,11,4": token ids. Throws kInvalidArgument, naming the line, and kNotFound.
  LogprobCheck(const std::string& path, double max_difference);

  // The mean of the log-probabilities of all tokens that the engine answers to the prompts, greedily: 16 to each.
  // Throws what Controller::Generate throws.
  double MeanOf(Controller& engine) const;
  // Why the version with the one mean is not to be promoted in place of that with the other; nullopt: it may be.
  std::optional<Error> Against(double before, double now) const;

 private:
  std::vector<std::vector<std::int32_t>> prompts_;
  double max_difference_;
};

}  // namespace layercast::cli
