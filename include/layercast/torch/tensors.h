// libtorch's tensors as Layercast sees them: their dtypes, specs and bytes. The headers of this folder are the ones
// that need libtorch; they are header-only, so they fit whichever torch the program links.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "layercast/dtype.h"
#include "layercast/error.h"
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

}  // namespace layercast
