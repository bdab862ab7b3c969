#include "engine_side/reload/commit.h"

#include <cstring>

#include "engine_side/reload/strided.h"

namespace layercast {

void WriteCaptured(const CapturedBuffer& buffer, std::span<const std::byte> bytes) {
  ForEachRun(buffer, [&](std::byte* address, std::size_t offset, std::size_t count) {
    std::memcpy(address, bytes.data() + offset, count);
  });
}

void ReadCaptured(const CapturedBuffer& buffer, std::span<std::byte> bytes) {
  ForEachRun(buffer, [&](const std::byte* address, std::size_t offset, std::size_t count) {
    std::memcpy(bytes.data() + offset, address, count);
  });
}

}  // namespace layercast
