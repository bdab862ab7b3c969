// The activation functions of feed-forward layers. Used by the blocks and the row kernels.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

namespace layercast {

enum class Activation : std::uint8_t { kSilu, kGelu, kGeluTanh, kReluSquared };

// Finds an activation by its name in config.json: "silu", "gelu", "gelu_pytorch_tanh", "relu2". Throws kUnsupported for
// any other name.
Activation ActivationOf(const std::string& hidden_act);

inline float Sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
// Softplus as torch computes it: the argument itself if that is above 20.
inline float Softplus(float x) { return x > 20.0F ? x : std::log1p(std::exp(x)); }

}  // namespace layercast
