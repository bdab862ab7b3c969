// How a chunk leaves the publisher: in pieces. Long contiguous runs are sent from where they lie; short ones are
// gathered first. Used by zmq, ucx and nccl.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "src/tensor/region.h"

namespace layercast {

constexpr std::size_t kInPlaceFrom = std::size_t{64} << 10;  // shorter runs are cheaper to copy together than to send

// Value; one thread only; the viewed memory is borrowed.
class ReplyPlan {
 public:
  explicit ReplyPlan(std::vector<RegionView> views);

  struct Next {
    std::span<const std::byte> in_place;  // a piece to send as it lies, or empty: then call Gather
    std::uint64_t offset = 0;             // of the piece inside the chunk
  };
  bool done() const { return started_ && view_ == views_.size(); }
  std::uint64_t offset() const { return offset_; }  // inside the chunk, of what comes next
  // The next piece, no longer than `most`, which is at least kInPlaceFrom. An empty chunk has one empty piece.
  Next Take(std::size_t most);
  // For callers that pack pieces themselves, instead of Take and Gather: the next whole rows of one region, or a part
  // of a row that does not fit. It has at most `most` bytes, which must not be 0, and no bytes at the end of the chunk.
  RegionView TakeView(std::size_t most);
  // After a Take that was not in place: copies the piece, no longer than `most`, to `destination`, and returns its
  // size.
  std::size_t Gather(std::byte* destination, std::size_t most);

 private:
  std::span<const std::byte> Run() const;  // what is left of the contiguous run at the cursor; empty at the end
  void Advance(std::size_t bytes);
  void SkipEmpty();

  std::vector<RegionView> views_;
  std::size_t view_ = 0;
  std::size_t row_ = 0;
  std::size_t column_ = 0;  // bytes of the current row that have been taken
  std::uint64_t offset_ = 0;
  bool started_ = false;
};

}  // namespace layercast
