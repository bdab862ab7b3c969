#include "engine_side/reload/commit_layerwise.h"

#include <cstdint>
#include <iterator>

#include "engine_side/reload/commit.h"
#include "engine_side/reload/served_digest.h"
#include "engine_side/reload/tensor_loop.h"
#include "src/base/digest.h"

namespace layercast {

LayerSink& LayerwiseCommitter::Begin() {
  Drop();
  digests_.assign(parts_.layout.tensors().size(), Digest());
  return *this;
}

Digest LayerwiseCommitter::digest() const { return CombineDigests(parts_.layout, digests_); }

void LayerwiseCommitter::Open(std::span<const KernelTensor> tensors) {
  const KernelTensor& first = tensors.front();
  const std::uint64_t end = tensors.back().staging_offset + tensors.back().num_bytes;
  scratch_[parts_.layout.IndexOf(first)] =
      Buffer(parts_.layer_memory, static_cast<std::size_t>(end - first.staging_offset));
}

std::span<std::byte> LayerwiseCommitter::BytesOf(const KernelTensor& tensor) const {
  const auto& [first, memory] = *std::prev(scratch_.upper_bound(parts_.layout.IndexOf(tensor)));
  const std::uint64_t offset = tensor.staging_offset - parts_.layout.tensors()[first].staging_offset;
  return memory.span().subspan(static_cast<std::size_t>(offset), tensor.num_bytes);
}

void LayerwiseCommitter::Close(std::span<const KernelTensor> tensors) {
  ForEachTensor(parts_.pool, tensors, [&](std::size_t i) {
    const std::size_t index = parts_.layout.IndexOf(tensors[i]);
    const std::span<const std::byte> bytes = BytesOf(tensors[i]);
    digests_[index] = DigestOf(bytes);
    parts_.failpoints.Hit("commit.copy");
    BeforeWriting(index);
    WriteCaptured(tensors[i], bytes);
  });
  scratch_.erase(parts_.layout.IndexOf(tensors.front()));
}

}  // namespace layercast
