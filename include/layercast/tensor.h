// Tensors as the core sees them: a dtype, a shape and an address. Used on both sides. Values; the memory is borrowed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "layercast/dtype.h"
#include "layercast/export.h"

namespace layercast {

using Shape = std::vector<std::int64_t>;

struct Device {
  enum class Kind : std::uint8_t { kHost, kCuda };
  Kind kind = Kind::kHost;
  int index = 0;  // CUDA ordinal; 0 for host

  bool operator==(const Device&) const = default;
};

// Product of the dimensions; 1 for a scalar. Throws kInvalidArgument on a negative dimension or overflow.
LAYERCAST_PUBLIC std::int64_t NumElements(const Shape& shape);
// Bytes of a contiguous tensor. Throws what NumElements throws, and kInvalidArgument if sub-byte elements do not fill
// whole bytes.
LAYERCAST_PUBLIC std::int64_t NumBytes(DType dtype, const Shape& shape);
// "[4096, 11008]"
LAYERCAST_PUBLIC std::string ToString(const Shape& shape);

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;

  std::int64_t num_elements() const { return NumElements(shape); }
  std::int64_t num_bytes() const { return NumBytes(dtype, shape); }
  bool operator==(const TensorSpec&) const = default;
};

// The bytes of all tensors together.
LAYERCAST_PUBLIC std::uint64_t TotalBytes(std::span<const TensorSpec> specs);

// "[4096, 11008] bf16": dtype and shape, for expected-against-got messages.
LAYERCAST_PUBLIC std::string Describe(DType dtype, const Shape& shape);
LAYERCAST_PUBLIC std::string Describe(const TensorSpec& spec);

// A contiguous, row-major tensor in somebody's memory.
struct TensorView {
  DType dtype = DType::kF32;
  Shape shape;
  const std::byte* data = nullptr;
  Device device{};

  std::int64_t num_bytes() const { return NumBytes(dtype, shape); }
};

// Which part of a tensor one of several holders has: a box of it, row-major, whose shape the part's own view tells.
struct TensorPart {
  Shape whole;    // the whole tensor's shape
  Shape offsets;  // where in the whole tensor the box begins, by dimension
  bool operator==(const TensorPart&) const = default;
};

// One element of a weights stream: `(name, tensor)`.
struct NamedTensor {
  std::string name;
  TensorView tensor;
  // Keeps the memory alive for a consumer that holds the tensor past the next step of the iterator. The second owner is
  // whatever produced the memory: a torch storage, a mapped file. Null: the memory is valid only until the iterator
  // moves on.
  std::shared_ptr<const void> owner{};
  // Which part of the tensor called `name` this is. Empty: all of it.
  std::optional<TensorPart> part{};
};

}  // namespace layercast
