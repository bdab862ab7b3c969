#include "engine_side/reload/layout/read_captured.h"

#include <cstring>

#include "engine_side/reload/layout/strided.h"
#include "src/tensor/kernels/stream_copy.h"

namespace layercast {

void ReadCaptured(const CapturedBuffer& buffer, std::span<std::byte> bytes) {
  ForEachRun(buffer, [&](const std::byte* address, std::size_t offset, std::size_t count) {
    std::memcpy(bytes.data() + offset, address, count);
  });
}

void SaveCaptured(const CapturedBuffer& buffer, std::span<std::byte> bytes) {
  ForEachRun(buffer, [&](const std::byte* address, std::size_t offset, std::size_t count) {
    StreamCopy(address, count, bytes.data() + offset);
  });
}

}  // namespace layercast
