// What `POST /v1/completions` asks for, in the words of the engine's own `generate`. Used by the HTTP door.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "src/control/json_forms.h"

namespace layercast {

// What there is to be asked for by `model`. Value.
struct ServedModels {
  std::string base;                   // the name of the model itself
  std::vector<std::string> adapters;  // served now
};

// Value.
struct CompletionRequest {
  static constexpr std::size_t kMostChoices = 1024;

  Json generate;                  // params of `generate`: each prompt `n` times, one after another
  std::string model;              // as it is called in the answer
  std::uint64_t seed = 0;         // of the first choice; each further one has one more
  std::size_t choices = 0;        // prompts times n
  std::size_t prompt_tokens = 0;  // of all prompts, each counted once
  bool logprobs = false;
  bool stream = false;
  bool usage_in_stream = false;  // a last event with what was used
};

// Throws kInvalidArgument naming the field for what can never be asked, kUnsupported for what OpenAI's API or engines
// beside this one have and this one has not, and kNotFound for a model that there is not. The model's own bounds are
// `generate`'s to check.
CompletionRequest CompletionRequestFrom(std::string_view body, const ServedModels& models);

}  // namespace layercast
