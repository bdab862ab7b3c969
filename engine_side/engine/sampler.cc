#include "engine_side/engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <string>
#include <vector>

#include "layercast/error.h"
#include "src/base/check.h"

namespace layercast {
namespace {

[[noreturn]] void RefuseLogit(const std::string& of, float logit) {
  throw Error(ErrorCode::kCorrupt,
              "the logit of " + of + " is " + std::to_string(logit) + ": the weights that are served are broken");
}

// The finalizer of SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators).
std::uint64_t Mix(std::uint64_t bits) {
  bits += 0x9e3779b97f4a7c15U;
  bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9U;
  bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebU;
  return bits ^ (bits >> 31);
}

std::size_t LargestLogit(std::span<const float> logits) {
  LAYERCAST_CHECK(!logits.empty());
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == HUGE_VALF) RefuseLogit("token " + std::to_string(i), logits[i]);
    if (logits[i] > logits[best]) best = i;
  }
  if (logits[best] == -HUGE_VALF) RefuseLogit("every token", logits[best]);
  return best;
}

double LogSumExp(std::span<const float> logits, double largest) {
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

// The tokens that may be picked, with their weights; sorted, the most likely first (ties by index), only if the
// parameters made that necessary.
struct Candidates {
  std::vector<std::int32_t> tokens;
  std::vector<double> weights;  // exp((logit - largest) / temperature)
};

void KeepTopP(double top_p, Candidates& candidates) {
  const double total = std::accumulate(candidates.weights.begin(), candidates.weights.end(), 0.0);
  double sum = 0.0;
  std::size_t kept = 0;
  while (kept < candidates.weights.size() && (kept == 0 || sum < top_p * total)) sum += candidates.weights[kept++];
  candidates.tokens.resize(kept);
  candidates.weights.resize(kept);
}

Candidates MakeCandidates(std::span<const float> logits, double largest, const SamplingParams& params) {
  Candidates candidates;
  candidates.tokens.resize(logits.size());
  std::iota(candidates.tokens.begin(), candidates.tokens.end(), 0);
  const bool cuts_k = params.top_k > 0 && static_cast<std::size_t>(params.top_k) < logits.size();
  if (cuts_k || params.top_p < 1.0) {
    const auto likelier = [&](std::int32_t a, std::int32_t b) {
      const float of_a = logits[static_cast<std::size_t>(a)];
      const float of_b = logits[static_cast<std::size_t>(b)];
      return of_a != of_b ? of_a > of_b : a < b;
    };
    const std::size_t kept = cuts_k ? static_cast<std::size_t>(params.top_k) : logits.size();
    std::partial_sort(candidates.tokens.begin(), candidates.tokens.begin() + static_cast<std::ptrdiff_t>(kept),
                      candidates.tokens.end(), likelier);
    candidates.tokens.resize(kept);
  }
  for (const std::int32_t token : candidates.tokens) {
    const double logit = logits[static_cast<std::size_t>(token)];
    candidates.weights.push_back(std::exp((logit - largest) / params.temperature));
  }
  if (params.top_p < 1.0) KeepTopP(params.top_p, candidates);
  return candidates;
}

// The first token at which the running sum passes `uniform` of the total.
std::int32_t Pick(const Candidates& candidates, double uniform) {
  const double total = std::accumulate(candidates.weights.begin(), candidates.weights.end(), 0.0);
  double sum = 0.0;
  std::int32_t last = candidates.tokens.front();
  for (std::size_t i = 0; i < candidates.tokens.size(); ++i) {
    if (candidates.weights[i] == 0.0) continue;
    sum += candidates.weights[i];
    last = candidates.tokens[i];
    if (sum > uniform * total) break;
  }
  return last;
}

}  // namespace

void CheckSamplingParams(const SamplingParams& params) {
  if (!(params.temperature >= 0.0) || !std::isfinite(params.temperature)) {
    throw Error(ErrorCode::kInvalidArgument,
                "temperature: expected a number from 0 on, got " + std::to_string(params.temperature));
  }
  if (!(params.top_p > 0.0 && params.top_p <= 1.0)) {
    throw Error(ErrorCode::kInvalidArgument,
                "top_p: expected a number above 0 and up to 1, got " + std::to_string(params.top_p));
  }
  if (params.top_k < 0) {
    throw Error(ErrorCode::kInvalidArgument, "top_k: expected 0 or more, got " + std::to_string(params.top_k));
  }
}

SampledToken Sample(std::span<const float> logits, const SamplingParams& params, std::uint64_t index) {
  const std::size_t best = LargestLogit(logits);
  const double largest = logits[best];
  std::int32_t token = static_cast<std::int32_t>(best);
  if (params.temperature > 0.0) {
    token = Pick(MakeCandidates(logits, largest, params), UniformAt(params.seed, index));
  }
  return {token, static_cast<double>(logits[static_cast<std::size_t>(token)]) - LogSumExp(logits, largest)};
}

double UniformAt(std::uint64_t seed, std::uint64_t index) {
  return static_cast<double>(Mix(Mix(seed) ^ index) >> 11) * 0x1.0p-53;
}

}  // namespace layercast
