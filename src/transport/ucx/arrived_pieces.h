// Which parts of a chunk have been claimed by a piece: pieces may come in any order, but none twice, and all of it
// once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace layercast::ucx_channel {

// Value; one thread only.
class ArrivedPieces {
 public:
  explicit ArrivedPieces(std::uint64_t bytes) : bytes_(bytes) {}

  // False, and nothing is claimed: outside the chunk, over another piece, or more pieces than any chunk is cut into.
  // An empty chunk has one piece, empty; no other has an empty one.
  bool Claim(std::uint64_t offset, std::uint64_t bytes);
  bool whole() const { return claimed_ == bytes_ && !ends_.empty(); }

 private:
  std::uint64_t bytes_;
  std::uint64_t claimed_ = 0;
  std::map<std::uint64_t, std::uint64_t> ends_;  // by where a piece begins
};

}  // namespace layercast::ucx_channel
