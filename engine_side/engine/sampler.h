// Picks the next token from one row of logits. Used by whoever generates: every rank that holds the full logits picks
// the same token. Pure functions; thread-safe.
#pragma once

#include <cstdint>
#include <span>

namespace layercast {

struct SamplingParams {
  double temperature = 0.0;  // 0: greedy, the first of the largest logits
  double top_p = 1.0;        // the fewest most likely tokens that reach this probability (after temperature and top_k)
  std::int64_t top_k = 0;    // 0: all
  std::uint64_t seed = 0;    // of the request
};

struct SampledToken {
  std::int32_t token = 0;
  // Natural logarithm of the token's probability under softmax(logits): at temperature 1 and without top_k and
  // top_p, whatever the parameters, which is what policy gradients want.
  double logprob = 0.0;
};

// Throws kInvalidArgument on a temperature that is negative or not finite, top_p outside (0, 1], negative top_k.
void CheckSamplingParams(const SamplingParams& params);

// `index` counts the request's tokens: the same logits, parameters and index give the same token, whatever else is
// sampled around it. Throws kCorrupt when a logit is NaN or +infinity.
SampledToken Sample(std::span<const float> logits, const SamplingParams& params, std::uint64_t index);

// log softmax(logits)[token], summed in double precision.
double LogProbability(std::span<const float> logits, std::int32_t token);

// A number in [0, 1) that is a function of its arguments alone.
double UniformAt(std::uint64_t seed, std::uint64_t index);

}  // namespace layercast
