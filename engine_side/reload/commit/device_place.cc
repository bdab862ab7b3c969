// A device's memory, with its log in pinned host memory. Nothing but Wait and digests' Finish waits.
#include "engine_side/reload/commit/place.h"
#include "engine_side/reload/layout/strided.h"
#include "engine_side/reload/work/device_work.h"
#include "src/device/device_digests.h"

namespace layercast {
namespace {

class DevicePlace final : public Place {
 public:
  explicit DevicePlace(DeviceWork& work)
      : Place(Device::Kind::kCuda,
              {.kept = work.stream().memory(), .log = work.stream().pinned(), .layer = work.layer_memory()}),
        work_(work) {}

  void Copy(const std::byte* from, std::byte* to, std::size_t bytes) override {
    if (bytes != 0) work_.stream().Copy(from, to, bytes);
  }
  // If the buffer is one run, `packed` may also be in the log.
  void Scatter(std::span<const std::byte> packed, const CapturedBuffer& to) override {
    if (packed.empty() || IsPacked(to)) return Copy(packed.data(), to.address, packed.size());
    const Walk walk = WalkOver(to).value();
    work_.stream().Scatter(to.dtype, packed.data(), to.dtype, to.address, walk, 0, walk.num_elements(), nullptr);
  }
  void Zero(const CapturedBuffer& buffer) override {
    const Walk walk = WalkOver(buffer).value();
    if (walk.num_elements() != 0) work_.stream().Zero(buffer.dtype, buffer.address, walk);
  }

  // Between the log and a buffer that is no single run, bytes go by way of a packed copy on the device. Save has taken
  // the memory for it that Restore takes again, so putting back asks for none.
  void Save(const CapturedBuffer& buffer, std::span<std::byte> log) override {
    if (IsPacked(buffer)) return Copy(buffer.address, log.data(), log.size());
    const Buffer packed(work_.layer_memory(), log.size());
    work_.CopyStrided(buffer, packed.span());
    Copy(packed.data(), log.data(), log.size());
  }
  void Restore(std::span<const std::byte> log, const CapturedBuffer& buffer) override {
    if (IsPacked(buffer)) return Scatter(log, buffer);
    const Buffer packed(work_.layer_memory(), log.size());
    Copy(log.data(), packed.data(), log.size());
    Scatter(packed.span(), buffer);
  }

  std::unique_ptr<TensorDigests> BeginDigests() override {
    return std::make_unique<DeviceDigests>(work_.stream(), work_.download(), work_.layer_memory());
  }
  void Wait() override { work_.stream().Wait(work_.stream().Record()); }

 private:
  DeviceWork& work_;
};

}  // namespace

std::unique_ptr<Place> MakeDevicePlace(DeviceWork& work) { return std::make_unique<DevicePlace>(work); }

}  // namespace layercast
