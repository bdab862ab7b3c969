// Stage 5 of the pipeline: the only code that writes into captured buffers. When it is called, and what is kept of the
// old bytes, is decided by the committers (committer.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine_side/reload/commit/place.h"
#include "engine_side/reload/layout/kernel_layout.h"

namespace layercast {

// Writes a tensor's captured buffer, which is at that place. `bytes` are all bytes of the tensor, row-major, whatever
// the buffer's strides, and lie where Place::Scatter takes them from. Padding in the buffer becomes zero.
void WriteCaptured(Place& place, const KernelTensor& tensor, std::span<const std::byte> bytes);

// What one thread writes of some tensors: the bytes from `begin` of tensor `first` to `end` of tensor `last`.
struct CommitShare {
  std::size_t first;
  std::size_t begin;
  std::size_t last;
  std::size_t end;
};
// Shares that together are all bytes of those tensors whose buffers are at that place; a share's range may also span
// others. Where work is done at once, they are of about equal size, for which a large tensor is cut if its buffer is
// one run; where it is queued, there is one.
std::vector<CommitShare> SharesOf(const Place& place, std::span<const KernelTensor> tensors);

// Bytes [begin, end) of a tensor, which are all of them if its buffer cannot be cut.
struct TensorPiece {
  const KernelTensor& tensor;
  std::size_t begin;
  std::size_t end;

  std::size_t num_bytes() const { return end - begin; }
  bool is_whole() const { return num_bytes() == tensor.num_bytes; }
};
// Calls visit(piece) for all pieces of the shares of that place. The pool's threads take a share each.
template <class Visit>
void ForEachPiece(const Place& place, std::span<const CommitShare> shares, std::span<const KernelTensor> tensors,
                  WorkerPool& pool, const Visit& visit) {
  pool.For(shares.size(), [&](std::size_t at) {
    const CommitShare& share = shares[at];
    for (std::size_t i = share.first; i <= share.last; ++i) {
      if (!place.Holds(tensors[i].destination)) continue;
      const std::size_t end = i == share.last ? share.end : tensors[i].num_bytes;
      visit(TensorPiece{tensors[i], i == share.first ? share.begin : 0, end});
    }
  });
}
// WriteCaptured of a piece, Place::Save to the log, and the way back. `bytes` and `log` are those of the whole tensor.
void WritePiece(Place& place, const TensorPiece& piece, std::span<const std::byte> bytes);
void SavePiece(Place& place, const TensorPiece& piece, std::span<std::byte> log);
void RestorePiece(Place& place, const TensorPiece& piece, std::span<const std::byte> log);

}  // namespace layercast
