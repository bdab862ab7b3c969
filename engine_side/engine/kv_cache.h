// The keys and values of every running sequence, in one layer on one rank: fp32 rows that grow token by token. Used by
// attention blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine_side/engine/cpu/kernels/activations.h"
#include "engine_side/engine/cpu/kernels/attend.h"

namespace layercast {

// Resource; one thread only.
class KvCache {
 public:
  // `heads` is the number of this rank's key/value heads.
  KvCache(std::size_t heads, std::size_t head_dim) : heads_(heads), padded_head_dim_(Activations::Padded(head_dim)) {}

  void Drop(std::uint64_t sequence) { sequences_.erase(sequence); }
  void Clear() { sequences_.clear(); }

  // Makes room for positions [0, length), new ones being zero. Starts the sequence if it is new.
  void GrowTo(std::uint64_t sequence, std::size_t length);

  // One token's key or value in one head: `padded_head_dim()` floats.
  float* Key(std::uint64_t sequence, std::size_t position, std::size_t head);
  float* Value(std::uint64_t sequence, std::size_t position, std::size_t head);
  // The keys or values of one head at positions [begin, end).
  HeadRows Keys(std::uint64_t sequence, std::size_t head, std::size_t begin, std::size_t end);
  HeadRows Values(std::uint64_t sequence, std::size_t head, std::size_t begin, std::size_t end);

  std::size_t padded_head_dim() const { return padded_head_dim_; }

 private:
  struct Sequence {
    std::vector<float> keys, values;
  };
  std::size_t row_floats() const { return heads_ * padded_head_dim_; }
  std::size_t Offset(std::size_t position, std::size_t head) const {
    return position * row_floats() + head * padded_head_dim_;
  }

  std::size_t heads_, padded_head_dim_;
  std::unordered_map<std::uint64_t, Sequence> sequences_;
};

}  // namespace layercast
