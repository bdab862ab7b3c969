// The committer of the policies `undo` and `in_place`: a layer is processed into scratch memory, and written over the
// live weights as soon as it is whole.
#include <cstdint>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "engine_side/reload/commit/commit.h"
#include "engine_side/reload/commit/old_bytes.h"
#include "engine_side/reload/layout/served_digest.h"
#include "engine_side/reload/layout/tensor_loop.h"
#include "src/base/digest/digest.h"
#include "src/base/memory/buffer_for.h"

namespace layercast {
namespace {

class LayerwiseCommitter final : public Committer, private LayerSink {
 public:
  LayerwiseCommitter(const CommitParts& parts, std::unique_ptr<OldBytes> old) : parts_(parts), old_(std::move(old)) {}

  bool writes_layers() const override { return true; }
  LayerSink& Begin() override {
    Drop();
    digests_.assign(parts_.layout.tensors().size(), Digest());
    return *this;
  }
  void Drop() override { scratch_.clear(); }
  void Commit() override {}  // the last layer's Close wrote the last byte
  Digest digest() const override { return CombineDigests(parts_.layout, digests_); }
  bool RollBack() override { return old_->PutBack(); }
  void Forget() override { old_->Forget(); }

 private:
  void Open(std::span<const KernelTensor> tensors) override {
    const KernelTensor& first = tensors.front();
    const std::uint64_t end = tensors.back().staging_offset + tensors.back().num_bytes;
    scratch_[parts_.layout.IndexOf(first)] = BufferFor("the layer of '" + first.spec.name + "'", parts_.layer_memory,
                                                       static_cast<std::size_t>(end - first.staging_offset));
  }

  std::span<std::byte> BytesOf(const KernelTensor& tensor) const override {
    const auto& [first, memory] = *std::prev(scratch_.upper_bound(parts_.layout.IndexOf(tensor)));
    const std::uint64_t offset = tensor.staging_offset - parts_.layout.tensors()[first].staging_offset;
    return memory.span().subspan(static_cast<std::size_t>(offset), tensor.num_bytes);
  }

  void Close(std::span<const KernelTensor> tensors) override {
    ForEachTensor(parts_.pool, tensors, [&](std::size_t i) {
      const std::size_t index = parts_.layout.IndexOf(tensors[i]);
      const std::span<const std::byte> bytes = BytesOf(tensors[i]);
      digests_[index] = DigestOf(bytes);
      parts_.failpoints.Hit("commit.copy");
      old_->Keep(index);
      WriteCaptured(tensors[i], bytes);
    });
    scratch_.erase(parts_.layout.IndexOf(tensors.front()));
  }

  const CommitParts parts_;
  const std::unique_ptr<OldBytes> old_;
  std::map<std::size_t, Buffer> scratch_;  // of open layers, by the index of their first kernel tensor
  std::vector<Digest> digests_;            // by kernel tensor, of closed layers
};

}  // namespace

std::unique_ptr<Committer> MakeLayerwiseCommitter(const CommitParts& parts, std::unique_ptr<OldBytes> old) {
  return std::make_unique<LayerwiseCommitter>(parts, std::move(old));
}

}  // namespace layercast
