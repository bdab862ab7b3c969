#include "engine_side/engine/kv_cache.h"

#include <string>

#include "layercast/error.h"

namespace layercast {

KvCache::KvCache(std::size_t layers, std::size_t heads, std::size_t head_dim, std::size_t max_tokens)
    : layers_(layers), heads_(heads), padded_head_dim_(Padded(head_dim)), max_tokens_(max_tokens) {}

std::size_t KvCache::Length(std::uint64_t sequence) const {
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? 0 : found->second.length;
}

void KvCache::Append(std::uint64_t sequence, std::size_t tokens) {
  const std::size_t length = Length(sequence) + tokens;
  if (length > max_tokens_) {
    throw Error(ErrorCode::kResourceExhausted, "sequence " + std::to_string(sequence) + " would be " +
                                                   std::to_string(length) + " tokens long, the model's limit is " +
                                                   std::to_string(max_tokens_));
  }
  Sequence& grown = sequences_[sequence];
  grown.rows.resize(2 * layers_);
  for (auto& rows : grown.rows) rows.resize(length * row_floats());
  grown.length = length;
}

float* KvCache::Key(std::uint64_t sequence, std::size_t layer, std::size_t position, std::size_t head) {
  return Rows(sequence, 2 * layer).data() + position * row_floats() + head * padded_head_dim_;
}

float* KvCache::Value(std::uint64_t sequence, std::size_t layer, std::size_t position, std::size_t head) {
  return Rows(sequence, 2 * layer + 1).data() + position * row_floats() + head * padded_head_dim_;
}

HeadRows KvCache::Keys(std::uint64_t sequence, std::size_t layer, std::size_t head, std::size_t begin,
                       std::size_t end) {
  return {Key(sequence, layer, begin, head), row_floats(), end - begin};
}

HeadRows KvCache::Values(std::uint64_t sequence, std::size_t layer, std::size_t head, std::size_t begin,
                         std::size_t end) {
  return {Value(sequence, layer, begin, head), row_floats(), end - begin};
}

}  // namespace layercast
