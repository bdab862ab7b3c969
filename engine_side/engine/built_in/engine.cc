#include "engine_side/engine/built_in/engine.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <c10/util/Exception.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "engine_side/engine/built_in/rope.h"
#include "engine_side/engine/cpu/cpu_decoder.h"
#include "engine_side/engine/torch/tensors/torch_type.h"
#include "engine_side/reload/layout/kernel_layout.h"
#include "layercast/error.h"
#include "src/device/cuda/cuda_probe.h"

namespace layercast {
namespace {

at::ScalarType TorchType(const TensorSpec& spec) {
  if (const std::optional<at::ScalarType> type = TorchTypeOf(spec.dtype)) return *type;
  throw Error(ErrorCode::kUnsupported,
              "the built-in engine has no use for '" + spec.name + "' " + Describe(spec.dtype, spec.shape));
}

const Device& CheckedDevice(const Device& device) {
  if (device.kind == Device::Kind::kHost) return device;
  const CudaProbe probe = ProbeCuda();
  if (device.index < probe.devices) return device;
  throw Error(ErrorCode::kUnsupported, "GPU " + std::to_string(device.index) + ": " +
                                           (probe ? "this host has " + std::to_string(probe.devices) : probe.why_none));
}

at::Tensor ZerosOn(const Device& device, const TensorSpec& spec) {
  const at::Device place = TorchDeviceOf(device);
  try {
    return at::zeros(spec.shape, at::TensorOptions(TorchType(spec)).device(place));
  } catch (const c10::Error& error) {
    throw Error(ErrorCode::kResourceExhausted, "'" + spec.name + "' (" + Describe(spec.dtype, spec.shape) + ") on " +
                                                   place.str() + ": " + error.what_without_backtrace());
  }
}

// Waits for queued zeroing, which must not overwrite what another stream writes.
void AwaitQueued(const Device& device) {
  if (device.kind == Device::Kind::kHost) return;
  const at::Device place = TorchDeviceOf(device);
  c10::impl::VirtualGuardImpl(place.type()).getStream(place).synchronize();
}

MakeForwardPass DecoderOver(const Peers& peers) {
  return [peers](const Module& model, const ParallelConfig& parallel, std::span<const CapturedBuffer> buffers) {
    return std::make_unique<Decoder>(model, parallel, buffers, peers, MakeRope);
  };
}

}  // namespace

struct Engine::Tensors {
  struct Named {
    TensorSpec spec;
    Buffer memory;  // empty if torch owns the memory
    at::Tensor tensor;
  };
  Device device;
  std::vector<Named> all;

  // `memory` provides the tensors' memory; null: torch does, on `device`.
  static std::unique_ptr<Tensors> Make(const Module& model, const LayerRecipes& recipes, const Device& device,
                                       MemoryResource* memory) {
    auto tensors = std::make_unique<Tensors>();
    tensors->device = device;
    for (TensorSpec& spec : KernelTensorsOf(LoadPlan::WithoutTensors(model), recipes)) {
      Buffer buffer = memory == nullptr ? Buffer() : Buffer(*memory, static_cast<std::size_t>(spec.num_bytes()));
      at::Tensor tensor = buffer ? at::from_blob(buffer.data(), spec.shape, TorchType(spec)) : ZerosOn(device, spec);
      tensors->all.push_back({std::move(spec), std::move(buffer), std::move(tensor)});
    }
    AwaitQueued(device);
    return tensors;
  }
};

Engine::Engine(const Module& model, const ParallelConfig& parallel, const LayerRecipes& recipes, const Peers& peers,
               MemoryResource& memory)
    : Engine(Tensors::Make(model, recipes, Device(), &memory), model, parallel, DecoderOver(peers)) {}

Engine::Engine(const Module& model, const ParallelConfig& parallel, const LayerRecipes& recipes, const Peers& peers)
    : Engine(Tensors::Make(model, recipes, Device(), nullptr), model, parallel, DecoderOver(peers)) {}

Engine::Engine(const Module& model, const ParallelConfig& parallel, const LayerRecipes& recipes, const Device& device,
               const MakeForwardPass& make)
    : Engine(Tensors::Make(model, recipes, CheckedDevice(device), nullptr), model, parallel, make) {}

Engine::Engine(std::unique_ptr<Tensors> tensors, const Module& model, const ParallelConfig& parallel,
               const MakeForwardPass& make)
    : tensors_(std::move(tensors)), pass_(make(model, parallel, Buffers())) {}

Engine::~Engine() = default;

std::vector<CapturedBuffer> Engine::Buffers() const {
  std::vector<CapturedBuffer> buffers;
  for (const auto& [spec, memory, tensor] : tensors_->all) {
    buffers.push_back({.name = spec.name,
                       .address = static_cast<std::byte*>(tensor.data_ptr()),
                       .dtype = spec.dtype,
                       .shape = tensor.sizes().vec(),
                       .strides = tensor.strides().vec(),
                       .device = tensors_->device});
  }
  return buffers;
}

CapturedBuffers Engine::Capture() const {
  return CapturedBuffers::Adopt(Buffers(), [this] { return Buffers(); });
}

}  // namespace layercast
