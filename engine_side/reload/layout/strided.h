// Captured buffers as walks, and those in host memory run by run (for a device's, see captured_on_device.h). Used to
// write and to read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "layercast/captured_buffers.h"
#include "src/tensor/walk.h"

namespace layercast {

// The buffer's elements in row-major order. Empty if its strides are too irregular for a walk.
inline std::optional<Walk> WalkOver(const CapturedBuffer& buffer) { return Walk::Over(buffer.shape, buffer.strides); }
// Whether the buffer's elements lie one behind the other, in row-major order.
bool IsPacked(const CapturedBuffer& buffer);

// Calls visit(address, row_major_offset, bytes) for every contiguous run of the buffer's elements, in row-major order.
void ForEachRun(const CapturedBuffer& buffer,
                const std::function<void(std::byte* address, std::size_t offset, std::size_t bytes)>& visit);
// The bytes that the buffer holds, row-major, whatever its strides.
void ReadCaptured(const CapturedBuffer& buffer, std::span<std::byte> bytes);

// The distance from the buffer's address to the end of the farthest element. Bytes.
std::size_t ExtentBytes(const CapturedBuffer& buffer);

}  // namespace layercast
