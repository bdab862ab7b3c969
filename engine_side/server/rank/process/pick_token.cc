#include "engine_side/server/rank/process/pick_token.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "engine_side/engine/sampler.h"
#include "layercast/error.h"

namespace layercast {
namespace {

Json PickToken(std::span<const float> logits, const Json& step) {
  const SamplingParams sampling{.temperature = step["temperature"].get<double>(),
                                .top_p = step["top_p"].get<double>(),
                                .top_k = step["top_k"].get<std::int64_t>(),
                                .seed = step["seed"].get<std::uint64_t>()};
  try {
    const SampledToken token = Sample(logits, sampling, step["index"].get<std::uint64_t>());
    return {{"token", token.token}, {"logprob", token.logprob}};
  } catch (const Error& error) {
    return {{"error", ErrorToJson(error)}};
  }
}

}  // namespace

Json PickTokens(const Logits& logits, const Json& steps) {
  Json picked = Json::array();
  for (std::size_t row = 0; row < logits.rows(); ++row) picked.push_back(PickToken(logits.row(row), steps[row]));
  return picked;
}

}  // namespace layercast
