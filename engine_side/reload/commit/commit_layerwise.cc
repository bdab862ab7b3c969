// The committer of the policies `undo` and `in_place`: a layer is processed into scratch memory, and written over the
// live weights as soon as it is whole.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "engine_side/reload/commit/commit.h"
#include "engine_side/reload/commit/old_bytes.h"
#include "engine_side/reload/commit/places.h"
#include "src/base/rounding.h"

namespace layercast {
namespace {

class LayerwiseCommitter final : public Committer, private LayerSink {
 public:
  LayerwiseCommitter(const CommitParts& parts, std::unique_ptr<OldBytes> old)
      : parts_(parts), places_(parts), old_(std::move(old)) {}

  LayerSink& Begin() override {
    Drop();
    digests_.assign(parts_.layout.tensors().size(), Digest());
    digesting_ = work().BeginDigests();
    return *this;
  }
  void Drop() override {
    digesting_.reset();
    scratch_.clear();
  }
  void Commit() override { work().Wait(); }  // the last layer's Close has asked for the last byte
  std::vector<Digest> digests() const override {
    digesting_->Finish();
    return digests_;
  }
  bool RollBack() override { return old_->PutBack(); }
  void Forget() override { old_->Forget(); }

 private:
  // An open layer.
  struct Scratch {
    Buffer memory;
    std::vector<std::size_t> offsets;  // of its kernel tensors
  };

  Place& work() const { return places_.work(); }

  // (Staging offsets count tensors on a device and in host memory apart.)
  void Open(std::span<const KernelTensor> tensors) override {
    std::vector<std::size_t> offsets;
    std::size_t end = 0;
    for (const KernelTensor& tensor : tensors) {
      offsets.push_back(RoundUp(end, kMemoryAlignment));
      end = offsets.back() + tensor.num_bytes;
    }
    const KernelTensor& first = tensors.front();
    scratch_[parts_.layout.IndexOf(first)] = {
        work().Take("the layer of '" + first.spec.name + "'", work().memory().layer, end), std::move(offsets)};
  }

  std::span<std::byte> BytesOf(const KernelTensor& tensor) const override {
    const std::size_t index = parts_.layout.IndexOf(tensor);
    const auto& [first, layer] = *std::prev(scratch_.upper_bound(index));
    return layer.memory.span().subspan(layer.offsets[index - first], tensor.num_bytes);
  }

  // On a device everything is queued. Only tensors that belong in host memory are then waited for.
  void Close(std::span<const KernelTensor> tensors) override {
    const std::size_t first = parts_.layout.IndexOf(tensors.front());
    std::vector<std::span<const std::byte>> bytes(tensors.size());
    std::ranges::transform(tensors, bytes.begin(), [&](const KernelTensor& tensor) { return BytesOf(tensor); });
    digesting_->Add(bytes, std::span(digests_).subspan(first, tensors.size()));
    parts_.failpoints.Hit("commit.copy");
    old_->Keep(tensors);
    ForEachPiece(work(), SharesOf(work(), tensors), tensors, parts_.pool, [&](const TensorPiece& piece) {
      if (&piece.tensor != &tensors.front()) parts_.failpoints.Hit("commit.copy");
      WritePiece(work(), piece, BytesOf(piece.tensor));
    });
    WriteElsewhere(tensors);
    scratch_.erase(first);
  }

  void WriteElsewhere(std::span<const KernelTensor> tensors) {
    std::vector<const KernelTensor*> there;
    std::vector<std::span<const std::byte>> made;
    for (const KernelTensor& tensor : tensors) {
      if (work().Holds(tensor.destination)) continue;
      there.push_back(&tensor);
      made.emplace_back(BytesOf(tensor));
    }
    if (there.empty()) return;
    Buffer memory;
    const std::vector<std::span<const std::byte>> read = parts_.device->ReadBack(made, memory);
    for (std::size_t i = 0; i < there.size(); ++i) WriteCaptured(places_.host(), *there[i], read[i]);
  }

  const CommitParts parts_;
  const Places places_;
  const std::unique_ptr<OldBytes> old_;
  std::map<std::size_t, Scratch> scratch_;    // of open layers, by the index of their first kernel tensor
  std::unique_ptr<TensorDigests> digesting_;  // of the version that was begun
  std::vector<Digest> digests_;               // by kernel tensor, of closed layers
};

}  // namespace

std::unique_ptr<Committer> MakeLayerwiseCommitter(const CommitParts& parts, std::unique_ptr<OldBytes> old) {
  return std::make_unique<LayerwiseCommitter>(parts, std::move(old));
}

}  // namespace layercast
