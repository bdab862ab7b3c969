// Cosines and sines of rotary embeddings by position, computed as far as sequences have grown. Used by attention
// blocks; layers with the same rotary embedding share a table.
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
  std::vector<float> inverse_frequencies;  // one for each rotated pair
  float attention_factor = 1.0F;           // multiplies cosines and sines
};

// Resource; one thread only.
class RotaryTable {
 public:
  RotaryTable(Rope rope, DType dtype) : rope_(std::move(rope)), dtype_(dtype) {}

  // Makes positions [0, end) available.
  void GrowTo(std::size_t end);
  std::size_t pairs() const { return rope_.inverse_frequencies.size(); }  // how many are rotated
  std::span<const float> Cos(std::size_t position) const { return Row(cos_, position); }
  std::span<const float> Sin(std::size_t position) const { return Row(sin_, position); }

 private:
  std::span<const float> Row(const std::vector<float>& values, std::size_t position) const {
    return std::span(values).subspan(position * pairs(), pairs());
  }

  Rope rope_;
  DType dtype_;  // cosines and sines are rounded to it
  std::vector<float> cos_, sin_;
};

// How frequencies are computed from a configuration: by rope.h, or by a test's own formula.
using RopeFunction = std::function<Rope(const RotaryEmbedding&)>;

// The tables of one model. Resource; one thread only.
class RotaryTables {
 public:
  RotaryTables(RopeFunction make_rope, DType dtype) : make_rope_(std::move(make_rope)), dtype_(dtype) {}
  RotaryTable& For(const RotaryEmbedding& embedding);  // the result lives as long as this object

 private:
  RopeFunction make_rope_;
  DType dtype_;
  std::vector<std::pair<RotaryEmbedding, std::unique_ptr<RotaryTable>>> tables_;
};

}  // namespace layercast
