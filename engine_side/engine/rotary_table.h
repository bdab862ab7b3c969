// Cosines and sines of rotary embeddings, by position, computed as far as sequences have grown. Used by attention
// blocks; layers that turn alike share a table.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "layercast/dtype.h"
#include "layercast/model/attention.h"

namespace layercast {

struct Rope {
  std::vector<float> inverse_frequencies;  // one for each pair that is turned
  float attention_factor = 1.0F;           // multiplies cosines and sines
};

// Resource; one thread only.
class RotaryTable {
 public:
  RotaryTable(Rope rope, DType dtype) : rope_(std::move(rope)), dtype_(dtype) {}

  // Makes positions [0, end) available.
  void GrowTo(std::size_t end);
  std::span<const float> Cos(std::size_t position) const { return Row(cos_, position); }
  std::span<const float> Sin(std::size_t position) const { return Row(sin_, position); }

 private:
  std::span<const float> Row(const std::vector<float>& values, std::size_t position) const {
    const std::size_t pairs = rope_.inverse_frequencies.size();
    return std::span(values).subspan(position * pairs, pairs);
  }

  Rope rope_;
  DType dtype_;  // both are rounded to it
  std::vector<float> cos_, sin_;
};

// How frequencies come from a configuration: rope.h, which needs torch, or a test's own formula.
using RopeFunction = std::function<Rope(const RotaryEmbedding&)>;

// The tables of one model. Resource; one thread only.
class RotaryTables {
 public:
  RotaryTables(RopeFunction make_rope, DType dtype) : make_rope_(std::move(make_rope)), dtype_(dtype) {}
  RotaryTable& For(const RotaryEmbedding& embedding);  // lives as long as this

 private:
  RopeFunction make_rope_;
  DType dtype_;
  std::vector<std::pair<RotaryEmbedding, std::unique_ptr<RotaryTable>>> tables_;
};

}  // namespace layercast
