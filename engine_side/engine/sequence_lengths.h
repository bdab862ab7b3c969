// The length of each sequence of a forward pass, and the check that refuses steps before the pass begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "engine_side/engine/forward_pass.h"

namespace layercast {

// Resource; one thread only.
class SequenceLengths {
 public:
  // `max_tokens` is the greatest length of a sequence, `adapter_slots` the number of those that steps may name.
  SequenceLengths(std::size_t vocab_size, std::size_t max_tokens, std::size_t adapter_slots = 0)
      : vocab_size_(vocab_size), max_tokens_(max_tokens), adapter_slots_(adapter_slots) {}

  // Throws kInvalidArgument for a step without tokens, with one outside the vocabulary or with an adapter slot that is
  // not there, kResourceExhausted for a sequence that would become too long. Errors name the sequence.
  void Check(std::span<const SequenceStep> steps) const;

  // The sequence's length, which the forward pass advances. An unknown sequence is added with length 0.
  std::size_t& Of(std::uint64_t sequence) { return lengths_[sequence]; }
  std::size_t Length(std::uint64_t sequence) const;  // 0 for an unknown sequence
  void Drop(std::uint64_t sequence) { lengths_.erase(sequence); }
  void DropAll() { lengths_.clear(); }

 private:
  const std::size_t vocab_size_;
  const std::size_t max_tokens_;
  const std::size_t adapter_slots_;
  std::unordered_map<std::uint64_t, std::size_t> lengths_;
};

}  // namespace layercast
