#include "engine_side/engine/kv_cache.h"

#include <algorithm>

namespace layercast {

void KvCache::GrowTo(std::uint64_t sequence, std::size_t length) {
  Sequence& grown = sequences_[sequence];
  const std::size_t floats = std::max(grown.keys.size(), length * row_floats());
  grown.keys.resize(floats);
  grown.values.resize(floats);
}

float* KvCache::Key(std::uint64_t sequence, std::size_t position, std::size_t head) {
  return sequences_.at(sequence).keys.data() + Offset(position, head);
}

float* KvCache::Value(std::uint64_t sequence, std::size_t position, std::size_t head) {
  return sequences_.at(sequence).values.data() + Offset(position, head);
}

HeadRows KvCache::Keys(std::uint64_t sequence, std::size_t head, std::size_t begin, std::size_t end) {
  return {Key(sequence, begin, head), row_floats(), end - begin};
}

HeadRows KvCache::Values(std::uint64_t sequence, std::size_t head, std::size_t begin, std::size_t end) {
  return {Value(sequence, begin, head), row_floats(), end - begin};
}

}  // namespace layercast
