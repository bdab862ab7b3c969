// For engines that use libtorch: adopt at::Tensors as captured buffers.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "layercast/captured_buffers.h"
#include "layercast/error.h"
#include "layercast/torch/tensors.h"

namespace layercast {

// Makes captured buffers of an engine's tensors, with their strides. The tensors are kept alive, and asked for their
// addresses again around every commit. They may lie in host memory and on one CUDA device. Throws kUnsupported, naming
// the tensor, if one lies on any other kind of device, and what SpecOf and CapturedBuffers::Adopt throw.
inline CapturedBuffers AdoptTensors(std::vector<NamedAtTensor> tensors) {
  auto table = [tensors = std::move(tensors)] {
    std::vector<CapturedBuffer> buffers;
    for (const auto& [name, tensor] : tensors) {
      const bool cuda = tensor.defined() && tensor.device().is_cuda();
      if (tensor.defined() && !cuda && !tensor.device().is_cpu()) {
        throw Error(ErrorCode::kUnsupported, "captured buffer '" + name + "' is on " + tensor.device().str());
      }
      TensorSpec spec = SpecOf(name, tensor);
      if (tensor.is_conj() || tensor.is_neg()) torch_detail::Refuse(name, "a view that is computed when it is read");
      buffers.push_back({.name = name,
                         .address = static_cast<std::byte*>(tensor.data_ptr()),
                         .dtype = spec.dtype,
                         .shape = std::move(spec.shape),
                         .strides = tensor.strides().vec(),
                         .device = cuda ? Device{Device::Kind::kCuda, tensor.device().index()} : Device()});
    }
    return buffers;
  };
  return CapturedBuffers::Adopt(table(), table);
}

}  // namespace layercast
