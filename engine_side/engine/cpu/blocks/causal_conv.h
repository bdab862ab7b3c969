// A causal convolution of each channel by itself, computed one token after another. Used by the blocks that keep a
// state for each sequence. Torch-free.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine_side/engine/cpu/kernels/row_linear.h"

namespace layercast {

// Value; the weights' memory is borrowed.
class CausalConv {
 public:
  // `weights`: [channels, kernel].
  explicit CausalConv(const LinearWeights& weights) : weights_(weights) {}
  std::size_t channels() const { return weights_.weight.rows; }
  std::size_t window_size() const { return (weights_.weight.cols - 1) * channels(); }

  // The weights, read anew in each pass.
  struct Values {
    std::vector<float> taps;  // [channels, kernel], the newest token's last
    std::vector<float> bias;  // [channels], or empty
  };
  Values ReadValues() const;

  // Replaces `token` by the convolution, plus bias, of itself and the inputs before it, which `window` holds
  // (window_size() floats, oldest first). Computed in fp32 and not rounded. Moves the window on by one token.
  void Apply(const Values& values, std::span<float> token, std::vector<float>& window) const;

 private:
  LinearWeights weights_;
};

}  // namespace layercast
