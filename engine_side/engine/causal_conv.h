// A causal convolution of each channel on its own, one token after another. Used by the blocks that keep a state for
// each sequence. Torch-free.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine_side/engine/linear.h"

namespace layercast {

// Value; the weights' memory is borrowed.
class CausalConv {
 public:
  // `weights`: [channels, kernel].
  explicit CausalConv(const LinearWeights& weights) : weights_(weights) {}
  std::size_t channels() const { return weights_.weight.rows; }
  std::size_t window_size() const { return (weights_.weight.cols - 1) * channels(); }

  // The weights as they are in this pass.
  struct Values {
    std::vector<float> taps;  // [channels, kernel], the newest token's last
    std::vector<float> bias;  // [channels], or empty
  };
  Values ReadValues() const;

  // token := the convolution of `window`, the inputs before it (window_size() of them, oldest first), and itself, plus
  // bias; in fp32, not rounded. The window moves on by one token.
  void Apply(const Values& values, std::span<float> token, std::vector<float>& window) const;

 private:
  LinearWeights weights_;
};

}  // namespace layercast
