// Stage 5. Copies the staged version into the captured buffers: the only code that writes there.
#pragma once

#include "engine_side/reload/kernel_layout.h"
#include "engine_side/reload/staging.h"
#include "layercast/captured_buffers.h"
#include "src/base/failpoint.h"

namespace layercast {

// Throws kFailedPrecondition before the first byte is written when the engine has moved a buffer. Never half done by an
// error: between the checks before and after there are only copies.
void Commit(const KernelLayout& layout, const Staging& staging, const CapturedBuffers& captured, WorkerPool& pool,
            FailPoints& failpoints);

}  // namespace layercast
