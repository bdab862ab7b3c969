// Walks a strided tensor in host memory as runs of contiguous bytes, in row-major order. Used to write and to read
// captured buffers (for a device's, see captured_on_device.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "layercast/captured_buffers.h"

namespace layercast {

// Calls visit(address, row_major_offset, bytes) for every contiguous run of the buffer's elements.
void ForEachRun(const CapturedBuffer& buffer,
                const std::function<void(std::byte* address, std::size_t offset, std::size_t bytes)>& visit);
// The bytes that the buffer holds, row-major, whatever its strides.
void ReadCaptured(const CapturedBuffer& buffer, std::span<std::byte> bytes);

// The distance from the buffer's address to the end of the farthest element. Bytes.
std::size_t ExtentBytes(const CapturedBuffer& buffer);

}  // namespace layercast
