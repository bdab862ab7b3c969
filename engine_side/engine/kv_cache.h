// Keys and values of every running sequence on one rank: fp32 rows that grow token by token. Used by the decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "engine_side/engine/kernels.h"

namespace layercast {

// Resource; one thread only.
class KvCache {
 public:
  // `heads` is the number of this rank's key/value heads; a sequence never grows beyond `max_tokens`.
  KvCache(std::size_t layers, std::size_t heads, std::size_t head_dim, std::size_t max_tokens);

  void Drop(std::uint64_t sequence) { sequences_.erase(sequence); }
  void Clear() { sequences_.clear(); }
  std::size_t num_sequences() const { return sequences_.size(); }
  std::size_t Length(std::uint64_t sequence) const;  // 0 for one that is not there

  // Room for `tokens` more rows in each layer, zero for now; the sequence starts if it is new. Throws
  // kResourceExhausted naming both numbers when it would grow too long; nothing has changed then.
  void Append(std::uint64_t sequence, std::size_t tokens);

  // One token's keys or values of one head: `padded_head_dim()` floats.
  float* Key(std::uint64_t sequence, std::size_t layer, std::size_t position, std::size_t head);
  float* Value(std::uint64_t sequence, std::size_t layer, std::size_t position, std::size_t head);
  // Rows [begin, end) of one head.
  HeadRows Keys(std::uint64_t sequence, std::size_t layer, std::size_t head, std::size_t begin, std::size_t end);
  HeadRows Values(std::uint64_t sequence, std::size_t layer, std::size_t head, std::size_t begin, std::size_t end);

  std::size_t padded_head_dim() const { return padded_head_dim_; }
  std::size_t max_tokens() const { return max_tokens_; }

 private:
  struct Sequence {
    std::size_t length = 0;
    std::vector<std::vector<float>> rows;  // layer 0 keys, layer 0 values, layer 1 keys, ...
  };
  std::vector<float>& Rows(std::uint64_t sequence, std::size_t index) { return sequences_.at(sequence).rows[index]; }
  std::size_t row_floats() const { return heads_ * padded_head_dim_; }

  std::size_t layers_, heads_, padded_head_dim_, max_tokens_;
  std::unordered_map<std::uint64_t, Sequence> sequences_;
};

}  // namespace layercast
