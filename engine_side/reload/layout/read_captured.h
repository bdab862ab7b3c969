// Reads captured buffers in host memory back (for a device's, see captured_on_device.h). Writing them is the commit
// stage's job (commit.h).
#pragma once

#include <cstddef>
#include <span>

#include "layercast/captured_buffer.h"

namespace layercast {

// The bytes that the buffer holds, row-major, whatever its strides.
void ReadCaptured(const CapturedBuffer& buffer, std::span<std::byte> bytes);
// The same, for bytes that are kept and not looked at soon: they go past the caches.
void SaveCaptured(const CapturedBuffer& buffer, std::span<std::byte> bytes);

}  // namespace layercast
