// The norms of queries and keys that are each taken over all heads together, including those on other ranks. Used by
// attention blocks.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "engine_side/engine/block.h"
#include "engine_side/engine/cpu/blocks/row_norm.h"
#include "layercast/model/attention.h"

namespace layercast {

// Resource; one thread only. All ranks make the same calls in the same order.
class NormOverHeads {
 public:
  // `attention` has a q_norm and a k_norm, both ParallelRMSNorm.
  NormOverHeads(const Attention& attention, const std::string& path, const BlockContext& context);
  // Normalizes in place the queries and keys with which each row of `qkv` begins. Makes one sum over ranks for all of
  // them.
  void Apply(Activations& qkv);

 private:
  struct Part {
    Norm norm;
    float total_size;  // number of elements on all ranks
  };
  static Part Find(const Attention& attention, const char* name, const std::string& path, CapturedWeights& weights);

  Collective& collective_;
  DType dtype_;
  std::array<Part, 2> parts_;  // of queries and of keys
  std::vector<float> sums_;    // scratch
};

}  // namespace layercast
