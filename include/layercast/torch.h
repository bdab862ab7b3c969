// Layercast for programs that use libtorch: publish a torch::nn::Module or any (name, at::Tensor) pairs, and adopt
// at::Tensors as captured buffers. The one header that needs libtorch; header-only, so it fits whichever torch the
// program links.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "layercast/captured_buffers.h"
#include "layercast/error.h"
#include "layercast/publisher.h"
#include "layercast/tensor.h"
#include "layercast/weights_iterator.h"

namespace layercast {

using NamedAtTensor = std::pair<std::string, at::Tensor>;

// Throws kUnsupported, naming the type, if Layercast has no such dtype.
inline DType DTypeOf(at::ScalarType type) {
  switch (type) {
    case at::ScalarType::Bool: return DType::kBool;
    case at::ScalarType::Byte: return DType::kU8;
    case at::ScalarType::Char: return DType::kI8;
    case at::ScalarType::Short: return DType::kI16;
    case at::ScalarType::Int: return DType::kI32;
    case at::ScalarType::Long: return DType::kI64;
    case at::ScalarType::UInt16: return DType::kU16;
    case at::ScalarType::UInt32: return DType::kU32;
    case at::ScalarType::UInt64: return DType::kU64;
    case at::ScalarType::Half: return DType::kF16;
    case at::ScalarType::BFloat16: return DType::kBF16;
    case at::ScalarType::Float: return DType::kF32;
    case at::ScalarType::Double: return DType::kF64;
    case at::ScalarType::ComplexFloat: return DType::kC64;
    case at::ScalarType::Float8_e4m3fn: return DType::kF8E4M3;
    case at::ScalarType::Float8_e5m2: return DType::kF8E5M2;
    case at::ScalarType::Float8_e8m0fnu: return DType::kF8E8M0;
    case at::ScalarType::Float8_e4m3fnuz: return DType::kF8E4M3FNUZ;
    case at::ScalarType::Float8_e5m2fnuz: return DType::kF8E5M2FNUZ;
    default: throw Error(ErrorCode::kUnsupported, std::string("torch type ") + c10::toString(type) + " has no dtype");
  }
}

namespace torch_detail {

[[noreturn]] inline void Refuse(const std::string& name, const std::string& what) {
  throw Error(ErrorCode::kInvalidArgument,
              "'" + name + "': expected a dense tensor with memory of its own, got " + what);
}

// How many bytes there are from the storage's begin to the end of the tensor's last element.
inline std::size_t BytesReached(const at::Tensor& tensor) {
  std::int64_t last = tensor.storage_offset();
  for (std::int64_t d = 0; d < tensor.dim(); ++d) last += (tensor.size(d) - 1) * tensor.stride(d);
  return static_cast<std::size_t>(last + 1) * tensor.itemsize();
}

}  // namespace torch_detail

// The tensor's spec. Throws, naming the tensor, if Layercast cannot read or write it where it lies: kInvalidArgument if
// it is undefined, sparse, on meta, or its storage was freed (as a sharded trainer frees what it has gathered);
// kUnsupported if its type has no dtype, as quantized types have none.
inline TensorSpec SpecOf(const std::string& name, const at::Tensor& tensor) {
  if (!tensor.defined()) torch_detail::Refuse(name, "an undefined one");
  if (tensor.layout() != c10::Layout::Strided) torch_detail::Refuse(name, "one that is not laid out in strides");
  if (tensor.is_meta() || !tensor.has_storage()) torch_detail::Refuse(name, "one on " + tensor.device().str());
  const std::size_t held = tensor.storage().nbytes();
  if (tensor.numel() != 0 && held < torch_detail::BytesReached(tensor)) {
    torch_detail::Refuse(name, "a storage of " + std::to_string(held) + " bytes where it needs " +
                                   std::to_string(torch_detail::BytesReached(tensor)) + ": was it freed?");
  }
  try {
    return {.name = name, .dtype = DTypeOf(tensor.scalar_type()), .shape = tensor.sizes().vec()};
  } catch (const Error& error) {
    throw Error(error.code(), "'" + name + "': " + error.what());
  }
}

// Where a walk yields the bytes of tensors that lie on CUDA devices. kToHost: in a copy on the host. kStay: on the
// device, from where a publisher sends them over channels that reach devices ("cuda_ipc", "nccl"). kStay needs a
// Layercast that was built with CUDA.
enum class CudaTensors : std::uint8_t { kToHost, kStay };

// The tensor's bytes, row-major, on the host or (kStay) on its device. They are the tensor's own memory if it is that
// already, else a copy; the result keeps them alive. For a tensor that stays on its device, this waits until torch's
// current stream there has written it.
inline NamedTensor NamedTensorOf(const std::string& name, const at::Tensor& tensor,
                                 CudaTensors cuda = CudaTensors::kToHost) {
  TensorSpec spec = SpecOf(name, tensor);
  const bool stays = tensor.is_cuda() && cuda == CudaTensors::kStay;
  const at::Tensor values = tensor.detach().resolve_conj().resolve_neg();  // views that are computed when they are read
  auto packed = std::make_shared<const at::Tensor>((stays ? values : values.cpu()).contiguous());
  if (stays) c10::impl::VirtualGuardImpl(at::kCUDA).getStream(tensor.device()).synchronize();
  const auto* data = static_cast<const std::byte*>(packed->const_data_ptr());
  const Device device = stays ? Device{Device::Kind::kCuda, tensor.device().index()} : Device();
  return {.name = std::move(spec.name),
          .tensor = {.dtype = spec.dtype, .shape = std::move(spec.shape), .data = data, .device = device},
          .owner = std::move(packed)};  // the second owner is whoever holds the tensor past the next step
}

// Publishes a list of tensors, which may be walked any number of times, in any order. A walk reads a tensor's values
// when it reaches it, so the tensors must not change while walks may go on: for a snapshot until Publish returns, for a
// stream until its PublishedVersion is released.
inline Weights TorchWeights(std::vector<NamedAtTensor> tensors, CudaTensors cuda = CudaTensors::kToHost) {
  Weights weights;
  std::unordered_map<std::string, std::size_t> places;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    weights.specs.push_back(SpecOf(tensors[i].first, tensors[i].second));
    if (!places.emplace(tensors[i].first, i).second) {
      throw Error(ErrorCode::kInvalidArgument, "'" + tensors[i].first + "' is to be published twice: expected it once");
    }
  }
  weights.walk = [tensors = std::move(tensors), places = std::move(places), cuda](std::span<const std::string> order) {
    std::vector<NamedAtTensor> list = order.empty() ? tensors : std::vector<NamedAtTensor>{};
    for (const std::string& name : order) {
      const auto place = places.find(name);
      if (place == places.end()) throw Error(ErrorCode::kNotFound, "no tensor '" + name + "' to publish");
      list.push_back(tensors[place->second]);
    }
    return MakeWeightsIterator(
        [list = std::move(list), cuda, next = std::size_t{0}]() mutable -> std::optional<NamedTensor> {
          if (next == list.size()) return std::nullopt;
          const NamedAtTensor& tensor = list[next++];
          return NamedTensorOf(tensor.first, tensor.second, cuda);
        });
  };
  return weights;
}

// What one rank of a sharded trainer holds of a tensor: `local` is all of it, or the part that `part` describes. For a
// DTensor, `local` is `to_local()`, and `compute_local_shape_and_global_offset` gives `part`. Value.
struct TorchShard {
  std::string name;
  at::Tensor local;
  std::optional<TensorPart> part{};
};

// Publishes what one rank of a sharded trainer holds, with PublishOptions::part. If several ranks hold the same tensor,
// only one of them may publish it. May be walked any number of times.
inline Weights TorchShards(std::vector<TorchShard> shards, CudaTensors cuda = CudaTensors::kToHost) {
  Weights weights;
  for (const TorchShard& shard : shards) {
    weights.specs.push_back(SpecOf(shard.name, shard.local));
    weights.parts.push_back(shard.part);
  }
  weights.walk = [shards = std::move(shards), cuda](std::span<const std::string> /*order*/) {
    return MakeWeightsIterator([shards, cuda, next = std::size_t{0}]() mutable -> std::optional<NamedTensor> {
      if (next == shards.size()) return std::nullopt;
      const TorchShard& shard = shards[next++];
      NamedTensor tensor = NamedTensorOf(shard.name, shard.local, cuda);
      tensor.part = shard.part;
      return tensor;
    });
  };
  return weights;
}

// Publishes a torch::nn::Module's parameters. What they are computed with it cannot know: set Weights::config, so that
// engines of another configuration refuse them. (A template, so that this header need not include torch's larger ones.)
template <typename TorchModule>
  requires requires(const TorchModule& module) { module.named_parameters().begin()->key(); }
Weights TorchWeights(const TorchModule& module, CudaTensors cuda = CudaTensors::kToHost) {
  std::vector<NamedAtTensor> tensors;
  for (const auto& parameter : module.named_parameters()) tensors.emplace_back(parameter.key(), parameter.value());
  return TorchWeights(std::move(tensors), cuda);
}

// Publishes what a generator yields, such as a layer-by-layer gather. It can be walked only once. `specs` are those of
// the tensors that it will yield: a stream needs them, a snapshot learns them as it walks.
inline Weights TorchWeights(std::function<std::optional<NamedAtTensor>()> next, std::vector<TensorSpec> specs = {},
                            CudaTensors cuda = CudaTensors::kToHost) {
  return Weights::Once(std::move(specs),
                       MakeWeightsIterator([next = std::move(next), cuda]() -> std::optional<NamedTensor> {
                         const std::optional<NamedAtTensor> tensor = next();
                         if (!tensor) return std::nullopt;
                         return NamedTensorOf(tensor->first, tensor->second, cuda);
                       }));
}

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
