// How long each sequence of a forward pass is, and the steps that a pass refuses before it begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

#include "engine_side/engine/forward_pass.h"

namespace layercast {

// One thread only.
class SequenceLengths {
 public:
  // `max_tokens`: of a sequence.
  SequenceLengths(std::size_t vocab_size, std::size_t max_tokens) : vocab_size_(vocab_size), max_tokens_(max_tokens) {}

  // Throws kInvalidArgument on a step without tokens or with one outside the vocabulary, kResourceExhausted where a
  // sequence would become too long; each names the sequence.
  void Check(std::span<const SequenceStep> steps) const;

  // To be advanced by who computes. A sequence that was not there is from now on.
  std::size_t& Of(std::uint64_t sequence) { return lengths_[sequence]; }
  std::size_t Length(std::uint64_t sequence) const;  // 0 for one that is not there
  void Drop(std::uint64_t sequence) { lengths_.erase(sequence); }
  void DropAll() { lengths_.clear(); }

 private:
  const std::size_t vocab_size_;
  const std::size_t max_tokens_;
  std::unordered_map<std::uint64_t, std::size_t> lengths_;
};

}  // namespace layercast
