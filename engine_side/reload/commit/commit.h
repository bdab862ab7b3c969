// Stage 5 of the pipeline: the only code that writes into captured buffers. When it is called, and what is kept of the
// old bytes, is decided by the committers (committer.h).
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine_side/reload/device/reload_stream.h"
#include "engine_side/reload/layout/kernel_layout.h"
#include "layercast/captured_buffers.h"

namespace layercast {

// Writes a tensor's captured buffer. `bytes` are all bytes of the tensor, row-major, whatever the buffer's strides.
// Padding in the buffer becomes zero.
void WriteCaptured(const KernelTensor& tensor, std::span<const std::byte> bytes);
// The same for a buffer on a device: the writes are queued on the stream. `bytes` are on the device as well, or, if the
// buffer is one run, in pinned memory.
void WriteCaptured(ReloadStream& stream, const KernelTensor& tensor, std::span<const std::byte> bytes);

// What one thread writes of a version: the bytes from `begin` of tensor `first` to `end` of tensor `last`.
struct CommitShare {
  std::size_t first;
  std::size_t begin;
  std::size_t last;
  std::size_t end;
};
// Shares of about equal size that together are all bytes of the tensors, in host memory. A large tensor is cut if its
// buffer is one run.
std::vector<CommitShare> SharesOf(std::span<const KernelTensor> tensors);
// Writes those bytes of a tensor that SharesOf has cut, from `begin` on.
void WritePart(const KernelTensor& tensor, std::size_t begin, std::span<const std::byte> bytes);

}  // namespace layercast
