#include "engine_side/engine/sequence_lengths.h"

#include <string>

#include "layercast/error.h"

namespace layercast {

void SequenceLengths::Check(std::span<const SequenceStep> steps) const {
  std::unordered_map<std::uint64_t, std::size_t> lengths;
  for (const SequenceStep& step : steps) {
    const std::string name = "sequence " + std::to_string(step.sequence);
    if (step.tokens.empty()) throw Error(ErrorCode::kInvalidArgument, name + ": no tokens");
    for (const std::int32_t token : step.tokens) {
      if (token >= 0 && static_cast<std::size_t>(token) < vocab_size_) continue;
      throw Error(ErrorCode::kInvalidArgument, name + ": token " + std::to_string(token) +
                                                   " is outside the vocabulary of " + std::to_string(vocab_size_));
    }
    if (step.adapter < -1 || step.adapter >= static_cast<std::int64_t>(adapter_slots_)) {
      throw Error(ErrorCode::kInvalidArgument, name + ": there is no adapter slot " + std::to_string(step.adapter) +
                                                   ", this engine has " + std::to_string(adapter_slots_));
    }
    auto [length, is_new] = lengths.try_emplace(step.sequence, Length(step.sequence));
    length->second += step.tokens.size();
    if (length->second > max_tokens_) {
      throw Error(ErrorCode::kResourceExhausted, name + " would be " + std::to_string(length->second) +
                                                     " tokens long, the model's limit is " +
                                                     std::to_string(max_tokens_));
    }
  }
}

std::size_t SequenceLengths::Length(std::uint64_t sequence) const {
  const auto found = lengths_.find(sequence);
  return found == lengths_.end() ? 0 : found->second;
}

}  // namespace layercast
