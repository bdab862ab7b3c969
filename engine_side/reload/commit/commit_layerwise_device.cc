// The committer of the policies `undo` and `in_place` for an engine on a device. It works as in commit_layerwise.cc,
// but on the stream.
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "engine_side/reload/commit/commit.h"
#include "engine_side/reload/commit/old_bytes.h"
#include "engine_side/reload/layout/captured_on_device.h"
#include "engine_side/reload/layout/served_digest.h"
#include "src/base/rounding.h"
#include "src/device/device_digests.h"

namespace layercast {
namespace {

class DeviceLayerwiseCommitter final : public Committer, private LayerSink {
 public:
  DeviceLayerwiseCommitter(const CommitParts& parts, std::unique_ptr<OldBytes> old)
      : parts_(parts), work_(*parts.device), old_(std::move(old)) {}

  bool writes_layers() const override { return true; }
  LayerSink& Begin() override {
    Drop();
    digests_.assign(parts_.layout.tensors().size(), Digest());
    digesting_ = std::make_unique<DeviceDigests>(work_.stream(), work_.download(), work_.layer_memory());
    return *this;
  }
  void Drop() override {
    digesting_.reset();
    scratch_.clear();
  }
  void Commit() override { work_.stream().Wait(work_.stream().Record()); }
  Digest digest() const override {
    digesting_->Finish();
    return CombineDigests(parts_.layout, digests_);
  }
  bool RollBack() override { return old_->PutBack(); }
  void Forget() override { old_->Forget(); }

 private:
  void Open(std::span<const KernelTensor> tensors) override {
    const std::size_t first = parts_.layout.IndexOf(tensors.front());
    scratch_[first] = Buffer(work_.layer_memory(), OffsetFrom(first, first + tensors.size()));
  }
  std::span<std::byte> BytesOf(const KernelTensor& tensor) const override {
    const std::size_t index = parts_.layout.IndexOf(tensor);
    const auto& [first, memory] = *std::prev(scratch_.upper_bound(index));
    return memory.span().subspan(OffsetFrom(first, index), tensor.num_bytes);
  }
  // Where kernel tensor `index` lies in the scratch memory that begins with `first`. (Staging offsets count tensors on
  // the device and in host memory apart.)
  std::size_t OffsetFrom(std::size_t first, std::size_t index) const {
    std::size_t offset = 0;
    for (std::size_t i = first; i < index; ++i) {
      offset += RoundUp(parts_.layout.tensors()[i].num_bytes, kMemoryAlignment);
    }
    return offset;
  }

  // Everything is queued, and scratch memory is given back in the stream's order. Only layers that the engine keeps in
  // host memory are waited for.
  void Close(std::span<const KernelTensor> tensors) override {
    for (const KernelTensor& tensor : tensors) {
      const std::size_t index = parts_.layout.IndexOf(tensor);
      const std::span<const std::byte> bytes = BytesOf(tensor);
      digesting_->Add(bytes.data(), bytes.size(), digests_[index]);
      parts_.failpoints.Hit("commit.copy");
      old_->Keep(index);
      if (IsOnDevice(tensor.destination)) WriteCaptured(work_.stream(), tensor, bytes);
    }
    WriteInHostMemory(tensors);
    scratch_.erase(parts_.layout.IndexOf(tensors.front()));
  }

  void WriteInHostMemory(std::span<const KernelTensor> tensors) {
    std::vector<const KernelTensor*> there;
    std::vector<std::span<const std::byte>> made;
    for (const KernelTensor& tensor : tensors) {
      if (IsOnDevice(tensor.destination)) continue;
      there.push_back(&tensor);
      made.emplace_back(BytesOf(tensor));
    }
    if (there.empty()) return;
    Buffer memory;
    const std::vector<std::span<const std::byte>> read = work_.ReadBack(made, memory);
    for (std::size_t i = 0; i < there.size(); ++i) WriteCaptured(*there[i], read[i]);
  }

  const CommitParts parts_;
  DeviceWork& work_;
  const std::unique_ptr<OldBytes> old_;
  std::map<std::size_t, Buffer> scratch_;     // of open layers, by the index of their first kernel tensor
  std::unique_ptr<DeviceDigests> digesting_;  // of the version that was begun
  std::vector<Digest> digests_;               // by kernel tensor, of closed ones
};

}  // namespace

std::unique_ptr<Committer> MakeDeviceLayerwiseCommitter(const CommitParts& parts, std::unique_ptr<OldBytes> old) {
  return std::make_unique<DeviceLayerwiseCommitter>(parts, std::move(old));
}

}  // namespace layercast
