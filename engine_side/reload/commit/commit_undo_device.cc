// The commit policy `undo` for an engine on a device. It works as in commit_undo.cc, but on the stream: the log is in
// pinned host memory, so the device keeps no second copy. The log ends with its process.
#include "engine_side/reload/commit/commit.h"
#include "engine_side/reload/commit/old_bytes.h"
#include "engine_side/reload/commit/write_record.h"
#include "engine_side/reload/device/walks.h"
#include "engine_side/reload/layout/captured_on_device.h"
#include "engine_side/reload/layout/read_captured.h"

namespace layercast {
namespace {

class DeviceUndoLog final : public OldBytes {
 public:
  explicit DeviceUndoLog(const CommitParts& parts)
      : parts_(parts),
        work_(*parts.device),
        of_device_(work_.stream().pinned(), static_cast<std::size_t>(parts.layout.staged_bytes(Device::Kind::kCuda))),
        saved_(parts.layout, parts.kept_memory),
        log_lost_(!saved_.empty()),
        of_host_(parts.kept_memory, static_cast<std::size_t>(parts.layout.staged_bytes(Device::Kind::kHost))) {}

  void Keep(std::size_t index) override {
    if (saved_.Has(index)) return;
    const KernelTensor& tensor = parts_.layout.tensors()[index];
    if (IsOnDevice(tensor.destination)) {
      Save(tensor);
    } else {
      SaveCaptured(tensor.destination, Saved(tensor));
    }
    saved_.Note(index);
  }

  bool PutBack() override {
    if (log_lost_) return false;
    const auto& tensors = parts_.layout.tensors();
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      if (!saved_.Has(i)) continue;
      parts_.failpoints.Hit("commit.undo");
      if (IsOnDevice(tensors[i].destination)) {
        Restore(tensors[i]);
      } else {
        WriteCaptured(tensors[i], Saved(tensors[i]));
      }
    }
    work_.stream().Wait(work_.stream().Record());
    saved_.Clear();
    return true;
  }
  void Forget() override {
    saved_.Clear();
    log_lost_ = false;
  }

 private:
  std::span<std::byte> Saved(const KernelTensor& tensor) const {
    const Buffer& log = IsOnDevice(tensor.destination) ? of_device_ : of_host_;
    return log.span().subspan(tensor.staging_offset, tensor.num_bytes);
  }

  // Between the log and a buffer that is no single run, bytes go by way of a packed copy on the device. Save has taken
  // the memory for it that Restore takes again, so putting back asks for none.
  void Save(const KernelTensor& tensor) {
    if (tensor.num_bytes == 0) return;
    const std::byte* from = tensor.destination.address;
    Buffer packed;
    if (!IsPacked(tensor.destination)) {
      packed = Buffer(work_.layer_memory(), tensor.num_bytes);
      work_.CopyStrided(tensor.destination, packed.span());
      from = packed.data();
    }
    work_.stream().Copy(from, Saved(tensor).data(), tensor.num_bytes);
  }
  void Restore(const KernelTensor& tensor) {
    if (IsPacked(tensor.destination)) return WriteCaptured(work_.stream(), tensor, Saved(tensor));
    Buffer packed(work_.layer_memory(), tensor.num_bytes);
    work_.stream().Copy(Saved(tensor).data(), packed.data(), tensor.num_bytes);
    WriteCaptured(work_.stream(), tensor, packed.span());
  }

  const CommitParts parts_;
  DeviceWork& work_;
  Buffer of_device_;   // pinned. Taken before kept_memory is asked: there may be too little of it
  WriteRecord saved_;  // of tensors whose copy is queued: what overwrites them is queued behind it
  bool log_lost_;      // saved_ has notes of a process that died, and whose log went with it
  Buffer of_host_;     // of layers that the engine keeps in host memory
};

}  // namespace

std::unique_ptr<OldBytes> MakeDeviceUndoLog(const CommitParts& parts) { return std::make_unique<DeviceUndoLog>(parts); }

}  // namespace layercast
