#include "engine_side/reload/commit.h"

#include <cstring>

#include "engine_side/device/walks.h"
#include "engine_side/reload/strided.h"

namespace layercast {

void WriteCaptured(const KernelTensor& tensor, std::span<const std::byte> bytes) {
  ForEachRun(tensor.destination, [&](std::byte* address, std::size_t offset, std::size_t count) {
    std::memcpy(address, bytes.data() + offset, count);
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
  stream.Scatter(buffer.dtype, bytes.data(), buffer.dtype, buffer.address, walk, 0, NumElements(walk));
}

void ReadCaptured(const CapturedBuffer& buffer, std::span<std::byte> bytes) {
  ForEachRun(buffer, [&](const std::byte* address, std::size_t offset, std::size_t count) {
    std::memcpy(bytes.data() + offset, address, count);
  });
}

}  // namespace layercast
