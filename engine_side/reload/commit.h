// Stage 5. The only code that writes into captured buffers. When it is called, and what is kept of the old bytes, is
// the committer's affair (committer.h).
#pragma once

#include <cstddef>
#include <span>

#include "engine_side/device/reload_stream.h"
#include "engine_side/reload/kernel_layout.h"
#include "layercast/captured_buffers.h"

namespace layercast {

// `bytes`: all of the tensor's, row-major, whatever its strides. Its padding becomes zero.
void WriteCaptured(const KernelTensor& tensor, std::span<const std::byte> bytes);
// The same where both are on a device: queued.
void WriteCaptured(ReloadStream& stream, const KernelTensor& tensor, std::span<const std::byte> bytes);
// Host memory alone (captured_on_device.h).
void ReadCaptured(const CapturedBuffer& buffer, std::span<std::byte> bytes);

}  // namespace layercast
