// Picks the next token from one row of logits. Used where tokens are generated: all ranks that hold the full logits
// pick the same token. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace layercast {

struct SamplingParams {
  double temperature = 0.0;  // 0: greedy, which takes the first of the largest logits
  double top_p = 1.0;        // keep the fewest tokens that reach this probability (after temperature, top_k)
  std::int64_t top_k = 0;    // keep this many of the likeliest tokens; 0: all
  std::uint64_t seed = 0;    // the request's
};

struct SampledToken {
  std::int32_t token = 0;
  // Natural logarithm of the token's probability under softmax(logits), whatever the parameters: temperature 1, without
  // top_k and top_p, which is what policy gradients want.
  double logprob = 0.0;
};

// Throws kInvalidArgument for a temperature that is negative or not finite, top_p outside (0, 1], or a negative top_k.
void CheckSamplingParams(const SamplingParams& params);

// Picks a token. `index` counts the request's tokens: the same logits, parameters and index give the same token,
// whatever else is sampled around it. Throws kCorrupt if a logit is NaN or +infinity, or all are -infinity.
SampledToken Sample(std::span<const float> logits, const SamplingParams& params, std::uint64_t index);

// A number in [0, 1) that depends on nothing but the arguments.
double UniformAt(std::uint64_t seed, std::uint64_t index);

}  // namespace layercast
