#include "engine_side/reload/layout/strided.h"

#include <cstring>

#include "src/tensor/strided_copy.h"

namespace layercast {
namespace {

// Slice number `index` along the first dimension.
CapturedBuffer SliceOf(const CapturedBuffer& buffer, std::int64_t index) {
  CapturedBuffer slice = buffer;
  slice.address += BytesOf(buffer.dtype, index * buffer.strides.front());
  slice.shape.erase(slice.shape.begin());
  slice.strides.erase(slice.strides.begin());
  return slice;
}

}  // namespace

bool IsPacked(const CapturedBuffer& buffer) {
  const std::optional<Walk> walk = WalkOver(buffer);
  return walk && walk->IsOneRun();
}

void ForEachRun(const CapturedBuffer& buffer,
                const std::function<void(std::byte* address, std::size_t offset, std::size_t bytes)>& visit) {
  std::size_t done = 0;
  if (const std::optional<Walk> walk = WalkOver(buffer)) {
    return walk->ForEachRun([&](std::int64_t offset, std::int64_t count) {
      const auto bytes = static_cast<std::size_t>(BytesOf(buffer.dtype, count));
      visit(buffer.address + BytesOf(buffer.dtype, offset), done, bytes);
      done += bytes;
    });
  }
  for (std::int64_t i = 0; i < buffer.shape.front(); ++i) {
    ForEachRun(SliceOf(buffer, i), [&](std::byte* address, std::size_t /*offset*/, std::size_t bytes) {
      visit(address, done, bytes);
      done += bytes;
    });
  }
}

void ReadCaptured(const CapturedBuffer& buffer, std::span<std::byte> bytes) {
  ForEachRun(buffer, [&](const std::byte* address, std::size_t offset, std::size_t count) {
    std::memcpy(bytes.data() + offset, address, count);
  });
}

std::size_t ExtentBytes(const CapturedBuffer& buffer) {
  if (NumElements(buffer.shape) == 0 || buffer.strides.empty()) {
    return static_cast<std::size_t>(NumBytes(buffer.dtype, buffer.shape));
  }
  std::int64_t last = 0;
  for (std::size_t d = 0; d < buffer.shape.size(); ++d) last += (buffer.shape[d] - 1) * buffer.strides[d];
  return static_cast<std::size_t>(BytesOf(buffer.dtype, last + 1));
}

}  // namespace layercast
