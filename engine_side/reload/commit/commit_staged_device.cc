// The commit policy `staged` for an engine on a device. It works as in commit_staged.cc, but on the stream. The host
// waits once for the digests and once for the commit, whatever the number of tensors.
#include "engine_side/reload/commit/commit.h"
#include "engine_side/reload/commit/committer.h"
#include "engine_side/reload/commit/device_staging.h"
#include "engine_side/reload/layout/captured_on_device.h"
#include "engine_side/reload/layout/served_digest.h"
#include "src/base/digest/digest.h"
#include "src/device/device_digests.h"

namespace layercast {
namespace {

class DeviceStagedCommitter final : public Committer {
 public:
  explicit DeviceStagedCommitter(const CommitParts& parts)
      : parts_(parts), work_(*parts.device), staging_(parts.layout, work_) {}

  bool writes_layers() const override { return false; }
  LayerSink& Begin() override {
    Drop();
    return staging_;
  }
  void Drop() override { staging_.Drop(); }

  // Copies to buffers on the device are queued first. While they run, the host copies to the buffers in its own memory.
  void Commit() override {
    for (const KernelTensor& tensor : parts_.layout.tensors()) {
      if (IsOnDevice(tensor.destination)) QueueCommit(tensor);
    }
    const DeviceStream::Ticket queued = work_.stream().Record();
    for (const KernelTensor& tensor : parts_.layout.tensors()) {
      if (IsOnDevice(tensor.destination)) continue;
      BeforeWriting();
      WriteCaptured(tensor, staging_.Staged(tensor));
    }
    work_.stream().Wait(queued);
  }

  // Leaf digests are computed where the bytes lie.
  Digest digest() const override {
    const auto& tensors = parts_.layout.tensors();
    std::vector<Digest> digests(tensors.size());
    DeviceDigests on_device(work_.stream(), work_.download(), work_.layer_memory());
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      const std::span<std::byte> staged = staging_.Staged(tensors[i]);
      if (IsOnDevice(tensors[i].destination)) on_device.Add(staged.data(), staged.size(), digests[i]);
    }
    on_device.Finish();
    work_.stream().Wait(work_.stream().Record());
    parts_.pool.For(tensors.size(), [&](std::size_t i) {
      if (!IsOnDevice(tensors[i].destination)) digests[i] = DigestOf(staging_.Staged(tensors[i]));
    });
    return CombineDigests(parts_.layout, digests);
  }

  bool RollBack() override { return !wrote_; }
  void Forget() override { wrote_ = false; }

 private:
  void BeforeWriting() {
    parts_.failpoints.Hit("commit.copy");
    wrote_ = true;
  }
  void QueueCommit(const KernelTensor& tensor) {
    BeforeWriting();
    WriteCaptured(work_.stream(), tensor, staging_.Staged(tensor));
  }

  const CommitParts parts_;
  DeviceWork& work_;
  DeviceStaging staging_;
  bool wrote_ = false;
};

}  // namespace

std::unique_ptr<Committer> MakeDeviceStagedCommitter(const CommitParts& parts) {
  return std::make_unique<DeviceStagedCommitter>(parts);
}

}  // namespace layercast
