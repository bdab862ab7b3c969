#include "engine_side/engine/engine.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "engine_side/engine/rope.h"
#include "engine_side/engine/torch/torch_type.h"
#include "engine_side/reload/kernel_layout.h"
#include "layercast/error.h"

namespace layercast {
namespace {

at::ScalarType TorchType(const TensorSpec& spec) {
  if (const std::optional<at::ScalarType> type = TorchTypeOf(spec.dtype)) return *type;
  throw Error(ErrorCode::kUnsupported,
              "the built-in engine has no use for '" + spec.name + "' " + Describe(spec.dtype, spec.shape));
}

}  // namespace

struct Engine::Tensors {
  struct Named {
    TensorSpec spec;
    Buffer memory;  // empty where torch owns it
    at::Tensor tensor;
  };
  std::vector<Named> all;

  static std::unique_ptr<Tensors> Make(const Module& model, const Recipe& recipe, MemoryResource* memory) {
    auto tensors = std::make_unique<Tensors>();
    for (TensorSpec& spec : KernelTensorsOf(LoadPlan::WithoutTensors(model), recipe)) {
      const at::TensorOptions options(TorchType(spec));
      Buffer buffer = memory == nullptr ? Buffer() : Buffer(*memory, static_cast<std::size_t>(spec.num_bytes()));
      at::Tensor tensor = buffer ? at::from_blob(buffer.data(), spec.shape, options) : at::zeros(spec.shape, options);
      tensors->all.push_back({std::move(spec), std::move(buffer), std::move(tensor)});
    }
    return tensors;
  }
};

Engine::Engine(const Module& model, const ParallelConfig& parallel, const Recipe& recipe, Collective& collective,
               MemoryResource& memory)
    : Engine(Tensors::Make(model, recipe, &memory), model, parallel, collective) {}

Engine::Engine(const Module& model, const ParallelConfig& parallel, const Recipe& recipe, Collective& collective)
    : Engine(Tensors::Make(model, recipe, nullptr), model, parallel, collective) {}

Engine::Engine(std::unique_ptr<Tensors> tensors, const Module& model, const ParallelConfig& parallel,
               Collective& collective)
    : tensors_(std::move(tensors)),
      decoder_(std::make_unique<Decoder>(model, parallel, Buffers(), collective, MakeRope)) {}

Engine::~Engine() = default;

std::vector<CapturedBuffer> Engine::Buffers() const {
  std::vector<CapturedBuffer> buffers;
  for (const auto& [spec, memory, tensor] : tensors_->all) {
    buffers.push_back({.name = spec.name,
                       .address = static_cast<std::byte*>(tensor.data_ptr()),
                       .dtype = spec.dtype,
                       .shape = tensor.sizes().vec(),
                       .strides = tensor.strides().vec(),
                       .device = {}});
  }
  return buffers;
}

CapturedBuffers Engine::Capture() const {
  return CapturedBuffers::Adopt(Buffers(), [this] { return Buffers(); });
}

}  // namespace layercast
