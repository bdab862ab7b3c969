#include "engine_side/engine/engine.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/zeros.h>

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "layercast/error.h"

namespace layercast {
namespace {

at::ScalarType TorchType(const TensorSpec& spec) {
  switch (spec.dtype) {
    case DType::kF32: return at::kFloat;
    case DType::kBF16: return at::kBFloat16;
    case DType::kF16: return at::kHalf;
    case DType::kF8E4M3: return at::kFloat8_e4m3fn;
    default: break;
  }
  throw Error(ErrorCode::kUnsupported,
              "the built-in engine has no use for '" + spec.name + "' " + Describe(spec.dtype, spec.shape));
}

// The kernel tensors of one parameter, with full names: "<path>.weight", "<path>.weight_scale".
std::vector<TensorSpec> KernelTensors(const Parameter& parameter, const std::string& path, const Recipe& recipe) {
  std::vector<TensorSpec> tensors = {parameter.spec};
  if (parameter.quantize) {
    tensors = recipe.KernelTensors(parameter.spec.dtype, parameter.spec.shape.at(0), parameter.spec.shape.at(1));
  }
  for (TensorSpec& tensor : tensors) tensor.name = path + "." + tensor.name;
  return tensors;
}

void Collect(const Module& module, const std::string& path, const Recipe& recipe, std::vector<TensorSpec>& tensors) {
  for (const Parameter& parameter : module.parameters()) {
    for (TensorSpec& tensor : KernelTensors(parameter, path, recipe)) tensors.push_back(std::move(tensor));
  }
  for (const auto& [name, child] : module.children()) {
    Collect(*child, path.empty() ? name : path + "." + name, recipe, tensors);
  }
}

}  // namespace

struct Engine::Tensors {
  struct Named {
    TensorSpec spec;
    at::Tensor tensor;
  };
  std::vector<Named> all;
};

Engine::Engine(const Module& model, const DecoderConfig& config, const ParallelConfig& parallel, const Recipe& recipe,
               Collective& collective)
    : tensors_(std::make_unique<Tensors>()) {
  std::vector<TensorSpec> specs;
  Collect(model, "", recipe, specs);
  for (TensorSpec& spec : specs) {
    at::Tensor tensor = at::zeros(spec.shape, at::TensorOptions(TorchType(spec)));
    tensors_->all.push_back({std::move(spec), std::move(tensor)});
  }
  decoder_ = std::make_unique<Decoder>(config, parallel, Buffers(), collective);
}

Engine::~Engine() = default;

std::vector<CapturedBuffer> Engine::Buffers() const {
  std::vector<CapturedBuffer> buffers;
  for (const auto& [spec, tensor] : tensors_->all) {
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
