#include "engine_side/engine/torch/torch_memory.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>

#include "engine_side/engine/torch/tensors/torch_type.h"
#include "layercast/error.h"
#include "src/device/cuda/cuda_probe.h"
#include "src/device/cuda/open_vmm_memory.h"

namespace layercast {
namespace {

void CheckThereIs(const Device& device) {
  if (device.kind == Device::Kind::kHost) return;
  const CudaProbe probe = ProbeCuda();
  if (device.index < probe.devices) return;
  throw Error(ErrorCode::kUnsupported, "GPU " + std::to_string(device.index) + ": " +
                                           (probe ? "this host has " + std::to_string(probe.devices) : probe.why_none));
}

class TorchMemory final : public SleepableMemory {
 public:
  // `why_awake`: why this memory cannot sleep.
  TorchMemory(const Device& device, std::string why_awake)
      : device_(device), place_(TorchDeviceOf(device)), why_awake_(std::move(why_awake)) {}

  std::byte* Allocate(std::size_t bytes) override {
    const at::Tensor block = Zeros(static_cast<std::int64_t>(bytes));
    AwaitQueued();
    auto* const address = static_cast<std::byte*>(block.data_ptr());
    if (address != nullptr) blocks_.emplace(address, block);
    return address;
  }

  void Deallocate(std::byte* address, std::size_t /*bytes*/) noexcept override { blocks_.erase(address); }

  Device device() const override { return device_; }

  std::size_t Sleep(SleepLevel /*level*/) override {
    throw Error(ErrorCode::kUnsupported, "memory on " + place_.str() + " cannot be lent back: " + why_awake_);
  }
  void Wake() override {}
  bool asleep() const override { return false; }

 private:
  at::Tensor Zeros(std::int64_t bytes) const {
    try {
      return at::zeros({bytes}, at::TensorOptions(at::kByte).device(place_));
    } catch (const c10::Error& error) {
      throw Error(ErrorCode::kResourceExhausted, place_.str() + ": " + error.what_without_backtrace());
    }
  }

  // Zeroing is queued, and must not overwrite what another stream writes.
  void AwaitQueued() const {
    if (device_.kind == Device::Kind::kHost) return;
    c10::impl::VirtualGuardImpl(place_.type()).getStream(place_).synchronize();
  }

  const Device device_;
  const at::Device place_;
  const std::string why_awake_;
  std::unordered_map<std::byte*, at::Tensor> blocks_;  // those that are in use
};

}  // namespace

std::unique_ptr<SleepableMemory> OpenTorchMemory(const Device& device) {
  CheckThereIs(device);
  if (device.kind == Device::Kind::kHost) return std::make_unique<TorchMemory>(device, "it is torch's, in host memory");
  try {
    return OpenVmmMemory(device.index);
  } catch (const Error& error) {
    return std::make_unique<TorchMemory>(device, error.what());
  }
}

}  // namespace layercast
