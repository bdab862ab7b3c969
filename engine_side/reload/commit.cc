#include "engine_side/reload/commit.h"

#include <cstring>

#include "engine_side/reload/strided.h"
#include "src/base/check.h"

namespace layercast {

void Commit(const KernelLayout& layout, const Staging& staging, const CapturedBuffers& captured, WorkerPool& pool,
            FailPoints& failpoints) {
  captured.CheckUnmoved();
  const Digest table = captured.TableDigest();
  pool.For(layout.tensors().size(), [&](std::size_t i) {
    const KernelTensor& tensor = layout.tensors()[i];
    failpoints.Hit("commit.copy");
    const std::byte* staged = staging.BytesOf(tensor).data();
    ForEachRun(tensor.destination, [&](std::byte* address, std::size_t offset, std::size_t bytes) {
      std::memcpy(address, staged + offset, bytes);
    });
  });
  captured.CheckUnmoved();
  LAYERCAST_CHECK(captured.TableDigest() == table);
}

}  // namespace layercast
