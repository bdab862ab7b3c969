#include "engine_side/engine/built_in/rope.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numbers>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>

#include "engine_side/engine/built_in/power.h"
#include "layercast/error.h"

namespace layercast {
namespace {

// The numbers from which frequencies are computed, with defaults filled in. Value.
struct Parameters {
  std::int64_t dim = 0;  // rotated elements of a head
  double theta = 0.0;
  double factor = 1.0;
  double original_context = 0.0;  // positions that the model was trained on before it was extended
  double low_freq_factor = 1.0;
  double high_freq_factor = 1.0;
  std::optional<double> attention_factor;
  double mscale = 0.0;
  double mscale_all_dim = 0.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool truncate = true;
};

std::optional<double> Find(const RopeConfig& rope, const std::string& name) {
  const auto found = rope.numbers.find(name);
  return found == rope.numbers.end() ? std::nullopt : std::optional(found->second);
}

double Get(const RopeConfig& rope, const std::string& name) {
  if (const auto value = Find(rope, name)) return *value;
  throw Error(ErrorCode::kInvalidArgument, "config.json: rope type '" + rope.type + "' needs '" + name + "'");
}

void CheckSupported(const RopeConfig& rope) {
  const std::string& type = rope.type;
  if (type == "default" || type == "linear" || type == "dynamic" || type == "llama3" || type == "yarn") return;
  throw Error(ErrorCode::kUnsupported, "config.json: the built-in engine does not know rope type '" + type +
                                           "'; it knows default, linear, dynamic, llama3, yarn");
}

double ThetaOf(const RopeConfig& rope) {
  using Limits = std::numeric_limits<float>;
  if (rope.theta >= Limits::min() && rope.theta <= Limits::max()) return rope.theta;
  std::ostringstream said;
  said << "config.json: 'rope_theta': expected a number that fp32 holds, got " << rope.theta;
  throw Error(ErrorCode::kInvalidArgument, said.str());
}

Parameters ParametersOf(const RotaryEmbedding& embedding) {
  const RopeConfig& rope = embedding.rope;
  const auto context = static_cast<double>(embedding.max_positions);
  Parameters parameters;
  parameters.dim = embedding.dim;
  parameters.theta = ThetaOf(rope);
  parameters.original_context = Find(rope, "original_max_position_embeddings").value_or(context);
  if (rope.type == "linear" || rope.type == "llama3") parameters.factor = Get(rope, "factor");
  if (rope.type == "yarn") parameters.factor = Find(rope, "factor").value_or(context / parameters.original_context);
  if (rope.type == "llama3") {
    parameters.low_freq_factor = Get(rope, "low_freq_factor");
    parameters.high_freq_factor = Get(rope, "high_freq_factor");
  }
  parameters.attention_factor = Find(rope, "attention_factor");
  parameters.mscale = Find(rope, "mscale").value_or(0.0);
  parameters.mscale_all_dim = Find(rope, "mscale_all_dim").value_or(0.0);
  const auto unless_zero = [&](const char* name, double otherwise) {
    const double value = Find(rope, name).value_or(0.0);
    return value == 0.0 ? otherwise : value;
  };
  parameters.beta_fast = unless_zero("beta_fast", 32.0);
  parameters.beta_slow = unless_zero("beta_slow", 1.0);
  parameters.truncate = Find(rope, "truncate").value_or(1.0) != 0.0;
  return parameters;
}

// theta ^ (2i / dim) in fp32.
std::vector<float> PositionFrequencies(const Parameters& parameters) {
  std::vector<float> exponents(static_cast<std::size_t>(parameters.dim / 2));
  for (std::size_t i = 0; i < exponents.size(); ++i) {
    exponents[i] = static_cast<float>(2 * i) / static_cast<float>(parameters.dim);
  }
  return Powers(static_cast<float>(parameters.theta), exponents);
}

// The functions below compute in fp32 in the order of transformers' tensor expressions, in which number / tensor is
// reciprocal * number.

void ScaleLlama3(const Parameters& parameters, std::vector<float>& inverse) {
  const auto factor = static_cast<float>(parameters.factor);
  const double context = parameters.original_context;
  const auto low_wavelength = static_cast<float>(context / parameters.low_freq_factor);
  const auto high_wavelength = static_cast<float>(context / parameters.high_freq_factor);
  const auto low = static_cast<float>(parameters.low_freq_factor);
  const auto range = static_cast<float>(parameters.high_freq_factor - parameters.low_freq_factor);
  for (float& frequency : inverse) {
    const float wavelength = (1.0F / frequency) * static_cast<float>(2.0 * std::numbers::pi);
    if (wavelength > low_wavelength) {
      frequency = frequency / factor;
    } else if (wavelength >= high_wavelength) {
      const float smooth = ((1.0F / wavelength) * static_cast<float>(context) - low) / range;
      const float slow = (1.0F - smooth) * frequency / factor;
      const float fast = smooth * frequency;
      frequency = slow + fast;
    }
  }
}

// The dimension whose wave makes `rotations` turns over the original context.
double CorrectionDimension(const Parameters& parameters, double rotations) {
  const double context = parameters.original_context;
  return static_cast<double>(parameters.dim) * std::log(context / (rotations * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(parameters.theta));
}

std::vector<float> YarnFrequencies(const Parameters& parameters) {
  double first = CorrectionDimension(parameters, parameters.beta_fast);
  double last = CorrectionDimension(parameters, parameters.beta_slow);
  if (parameters.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, static_cast<double>(parameters.dim - 1));
  if (first == last) last += 0.001;
  const auto factor = static_cast<float>(parameters.factor);
  std::vector<float> frequencies = PositionFrequencies(parameters);
  for (std::size_t i = 0; i < frequencies.size(); ++i) {
    const float extrapolated = 1.0F / frequencies[i];
    const float interpolated = 1.0F / (factor * frequencies[i]);
    const float ramp = (static_cast<float>(i) - static_cast<float>(first)) / static_cast<float>(last - first);
    const float share = 1.0F - std::clamp(ramp, 0.0F, 1.0F);
    const float slow = interpolated * (1.0F - share);
    const float fast = extrapolated * share;
    frequencies[i] = slow + fast;
  }
  return frequencies;
}

double YarnAttentionFactor(const Parameters& parameters) {
  if (parameters.attention_factor) return *parameters.attention_factor;
  const double factor = parameters.factor;
  const auto scale = [&](double by) { return factor <= 1.0 ? 1.0 : 0.1 * by * std::log(factor) + 1.0; };
  if (parameters.mscale == 0.0 || parameters.mscale_all_dim == 0.0) return scale(1.0);
  return scale(parameters.mscale) / scale(parameters.mscale_all_dim);
}

}  // namespace

Rope MakeRope(const RotaryEmbedding& embedding) {
  const std::string& type = embedding.rope.type;
  CheckSupported(embedding.rope);
  const Parameters parameters = ParametersOf(embedding);
  if (type == "yarn") return {YarnFrequencies(parameters), static_cast<float>(YarnAttentionFactor(parameters))};
  Rope rope{PositionFrequencies(parameters), 1.0F};
  for (float& frequency : rope.inverse_frequencies) frequency = 1.0F / frequency;
  if (type == "linear") {
    for (float& frequency : rope.inverse_frequencies) frequency /= static_cast<float>(parameters.factor);
  }
  if (type == "llama3") ScaleLlama3(parameters, rope.inverse_frequencies);
  return rope;
}

}  // namespace layercast
