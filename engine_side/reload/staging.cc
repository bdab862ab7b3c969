#include "engine_side/reload/staging.h"

#include "src/base/digest.h"

namespace layercast {

std::vector<Digest> Staging::Digests(const KernelLayout& layout, WorkerPool& pool) const {
  std::vector<Digest> digests(layout.tensors().size());
  pool.For(digests.size(), [&](std::size_t i) { digests[i] = DigestOf(BytesOf(layout.tensors()[i])); });
  return digests;
}

}  // namespace layercast
