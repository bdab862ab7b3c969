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
// The same for bytes that Place::Save has put into the log.
void RestoreCaptured(Place& place, const KernelTensor& tensor, std::span<const std::byte> log);

// What one thread writes of a version: the bytes from `begin` of tensor `first` to `end` of tensor `last`.
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
// Writes those bytes of a tensor that SharesOf has cut, from `begin` on.
void WritePart(Place& place, const KernelTensor& tensor, std::size_t begin, std::span<const std::byte> bytes);

}  // namespace layercast
