// Which parts of a chunk have come. Its pieces may come in any order, but each byte must come exactly once. Part of
// UcxFetchingEnd.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

namespace layercast::ucx_channel {

// Value; one thread only.
class ArrivedPieces {
 public:
  explicit ArrivedPieces(std::uint64_t bytes) : bytes_(bytes) {}

  // Claims the part of the chunk that a piece brings. False, and nothing is claimed, if the part reaches outside the
  // chunk or overlaps another piece, or there are more pieces than any chunk is cut into. An empty chunk has one piece,
  // which is empty; no other chunk has an empty piece.
  bool Claim(std::uint64_t offset, std::uint64_t bytes);
  bool whole() const { return claimed_ == bytes_ && !ends_.empty(); }

 private:
  std::uint64_t bytes_;
  std::uint64_t claimed_ = 0;
  std::map<std::uint64_t, std::uint64_t> ends_;  // where each piece ends, by where it begins
};

}  // namespace layercast::ucx_channel
