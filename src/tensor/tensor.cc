#include "layercast/tensor.h"

#include "layercast/error.h"

namespace layercast {

std::int64_t NumElements(const Shape& shape) {
  std::int64_t elements = 1;
  bool zero = false;
  for (const std::int64_t dim : shape) {
    if (dim < 0) throw Error(ErrorCode::kInvalidArgument, "shape " + ToString(shape) + " has a negative dimension");
    if (dim == 0) {
      zero = true;
      continue;
    }
    if (__builtin_mul_overflow(elements, dim, &elements)) {
      throw Error(ErrorCode::kInvalidArgument, "shape " + ToString(shape) + " has more than 2^63 elements");
    }
  }
  return zero ? 0 : elements;
}

std::int64_t NumBytes(DType dtype, const Shape& shape) {
  std::int64_t bits = 0;
  if (__builtin_mul_overflow(NumElements(shape), static_cast<std::int64_t>(BitsPerElement(dtype)), &bits)) {
    throw Error(ErrorCode::kInvalidArgument, Describe(dtype, shape) + " has more than 2^63 bits");
  }
  if (bits % 8 != 0) {
    throw Error(ErrorCode::kInvalidArgument, Describe(dtype, shape) + " does not fill whole bytes");
  }
  return bits / 8;
}

std::string ToString(const Shape& shape) {
  std::string out = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) {
    if (i != 0) out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

std::uint64_t TotalBytes(std::span<const TensorSpec> specs) {
  std::uint64_t bytes = 0;
  for (const TensorSpec& spec : specs) bytes += static_cast<std::uint64_t>(spec.num_bytes());
  return bytes;
}

std::string Describe(DType dtype, const Shape& shape) { return ToString(shape) + " " + std::string(Name(dtype)); }

std::string Describe(const TensorSpec& spec) { return Describe(spec.dtype, spec.shape); }

}  // namespace layercast
