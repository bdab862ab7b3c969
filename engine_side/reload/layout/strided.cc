#include "engine_side/reload/layout/strided.h"

#include <cstring>

namespace layercast {
namespace {

std::size_t ElementBytes(const CapturedBuffer& buffer) {
  return static_cast<std::size_t>(BitsPerElement(buffer.dtype)) / 8;
}

// The first of the trailing dimensions that together are one contiguous run.
std::size_t ContiguousSuffix(const CapturedBuffer& buffer) {
  std::size_t first = buffer.shape.size();
  std::int64_t expected = 1;
  while (first > 0 && (buffer.shape[first - 1] == 1 || buffer.strides[first - 1] == expected)) {
    --first;
    expected *= buffer.shape[first];
  }
  return first;
}

}  // namespace

void ForEachRun(const CapturedBuffer& buffer,
                const std::function<void(std::byte* address, std::size_t offset, std::size_t bytes)>& visit) {
  const auto total = static_cast<std::size_t>(NumBytes(buffer.dtype, buffer.shape));
  if (total == 0) return;
  const std::size_t outer = buffer.strides.empty() ? 0 : ContiguousSuffix(buffer);
  if (outer == 0) return visit(buffer.address, 0, total);

  std::vector<std::int64_t> index(outer, 0);
  std::size_t runs = 1;
  for (std::size_t d = 0; d < outer; ++d) runs *= static_cast<std::size_t>(buffer.shape[d]);
  const std::size_t run_bytes = total / runs;
  for (std::size_t run = 0; run < runs; ++run) {
    std::int64_t element = 0;
    for (std::size_t d = 0; d < outer; ++d) element += index[d] * buffer.strides[d];
    visit(buffer.address + static_cast<std::size_t>(element) * ElementBytes(buffer), run * run_bytes, run_bytes);
    for (std::size_t d = outer; d-- > 0 && ++index[d] == buffer.shape[d];) index[d] = 0;
  }
}

void ReadCaptured(const CapturedBuffer& buffer, std::span<std::byte> bytes) {
  ForEachRun(buffer, [&](const std::byte* address, std::size_t offset, std::size_t count) {
    std::memcpy(bytes.data() + offset, address, count);
  });
}

std::size_t ExtentBytes(const CapturedBuffer& buffer) {
  const auto bytes = static_cast<std::size_t>(NumBytes(buffer.dtype, buffer.shape));
  if (bytes == 0 || buffer.strides.empty()) return bytes;
  std::int64_t last = 0;
  for (std::size_t d = 0; d < buffer.shape.size(); ++d) last += (buffer.shape[d] - 1) * buffer.strides[d];
  return (static_cast<std::size_t>(last) + 1) * ElementBytes(buffer);
}

}  // namespace layercast
