// One sequence that is being generated: what it has, what it still wants, and which version each token came from.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "layercast/version.h"
#include "src/control/json_forms.h"

namespace layercast {

struct SequenceRequest {
  std::vector<std::int32_t> prompt;
  std::int64_t max_new = 16;
  double temperature = 0;
  double top_p = 1;
  std::int64_t top_k = 0;
  std::uint64_t seed = 0;
  std::vector<std::int32_t> stop_tokens;  // ends after one of these
};

// Value; of the generating thread.
struct Sequence {
  std::uint64_t id = 0;
  SequenceRequest request;
  std::vector<std::int32_t> tokens;  // generated
  std::vector<double> logprobs;
  std::vector<Version> versions;  // of each token
  std::size_t cached = 0;         // of prompt and tokens: how many the ranks' KV caches hold
  std::function<void(const Sequence&, const char* finish)> done;

  bool finished() const;
  // What the ranks must still see to give the next token.
  std::vector<std::int32_t> NextTokens() const;
  // {"tokens", "logprobs", "finish", "spans"}
  Json ToJson(const char* finish, bool logprobs) const;
};

}  // namespace layercast
