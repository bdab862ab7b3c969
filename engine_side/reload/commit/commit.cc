#include "engine_side/reload/commit/commit.h"

#include <algorithm>
#include <cstring>

#include "engine_side/reload/device/walks.h"
#include "engine_side/reload/layout/strided.h"
#include "src/base/check.h"
#include "src/tensor/kernels/stream_copy.h"

namespace layercast {
namespace {

// Bytes of a share. Copying them takes about twice as long as waking a thread.
constexpr std::size_t kShareBytes = std::size_t{1} << 20;

bool MayBeCut(const KernelTensor& tensor) { return tensor.padding.empty() && IsPacked(tensor.destination); }

}  // namespace

void WriteCaptured(const KernelTensor& tensor, std::span<const std::byte> bytes) {
  ForEachRun(tensor.destination, [&](std::byte* address, std::size_t offset, std::size_t count) {
    StreamCopy(bytes.data() + offset, count, address);
  });
  for (const CapturedBuffer& padding : tensor.padding) {
    ForEachRun(padding,
               [](std::byte* address, std::size_t /*offset*/, std::size_t count) { std::memset(address, 0, count); });
  }
}

void WriteCaptured(ReloadStream& stream, const KernelTensor& tensor, std::span<const std::byte> bytes) {
  for (const CapturedBuffer& padding : tensor.padding) {
    const ElementWalk walk = WalkOver(padding).value();
    if (NumElements(walk) != 0) stream.Zero(padding.dtype, padding.address, walk);
  }
  if (bytes.empty()) return;
  const CapturedBuffer& buffer = tensor.destination;
  if (IsPacked(buffer)) return stream.Copy(bytes.data(), buffer.address, bytes.size());
  const ElementWalk walk = WalkOver(buffer).value();
  stream.Scatter(buffer.dtype, bytes.data(), buffer.dtype, buffer.address, walk, 0, NumElements(walk), nullptr);
}

std::vector<CommitShare> SharesOf(std::span<const KernelTensor> tensors) {
  std::vector<CommitShare> shares;
  std::size_t room = 0;  // of the last share
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const bool may_be_cut = tensors[i].num_bytes > kShareBytes && MayBeCut(tensors[i]);
    std::size_t begin = 0;
    do {  // once for a tensor without bytes, which may have padding
      if (room == 0) {
        shares.push_back({.first = i, .begin = begin, .last = i, .end = begin});
        room = kShareBytes;
      }
      const std::size_t left = tensors[i].num_bytes - begin;
      const std::size_t bytes = may_be_cut ? std::min(left, room) : left;
      begin += bytes;
      room -= std::min(bytes, room);
      shares.back().last = i;
      shares.back().end = begin;
    } while (begin < tensors[i].num_bytes);
  }
  return shares;
}

void WritePart(const KernelTensor& tensor, std::size_t begin, std::span<const std::byte> bytes) {
  LAYERCAST_CHECK(MayBeCut(tensor) && begin + bytes.size() <= tensor.num_bytes);
  StreamCopy(bytes.data(), bytes.size(), tensor.destination.address + begin);
}

}  // namespace layercast
