// What a module holds, as pure data: parameters, and tensors that the layer computes from them. On meta a parameter has
// a dtype, a shape and a sharding, and no memory. Used by modules, load plans and the reload's stages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "layercast/export.h"
#include "layercast/memory.h"
#include "layercast/tensor.h"

namespace layercast {

struct QuantizedForm;

// Which axis of the whole weight a rank holds a part of.
enum class ShardAxis : std::uint8_t { kNone, kRows, kCols };

// Which values the elements of a parameter may have. A load that brings another value fails.
enum class Sign : std::uint8_t { kAny, kNotNegative, kPositive };

// Resource: owns its storage once it has some. One thread at a time.
struct LAYERCAST_PUBLIC Parameter {
  TensorSpec spec;  // name within its module ("weight"); shape of this rank's part, fused
  ShardAxis shard_axis = ShardAxis::kNone;
  bool quantize = false;  // a recipe applies (to weights of linear layers and of experts); false: it is copied as it is
  Buffer storage;         // empty while on meta
  Sign sign = Sign::kAny;
  // The value that every element gets if a version has nothing for this layer. Empty: that is an error.
  std::optional<float> fallback = {};
  // The index of another parameter of the module, whose tensors fill this one too if they come and its own do not.
  std::optional<std::uint32_t> stand_in = {};
  // The quantized form in which checkpoints may hold this weight, as config.json says. Null: full precision only. Owned
  // by the layer.
  const QuantizedForm* form = nullptr;

  bool on_meta() const { return !storage; }
  // Gives the parameter memory of its size, which is initialized only if the memory resource does so.
  void MaterializeOn(MemoryResource& memory);
  void ToMeta() { storage = Buffer(); }
};

// A tensor that a layer computes from its own parameters, such as MLA's W_UK_T and W_UV, or a state space's A. No
// checkpoint holds it, and it is served like any other (Module::AddDerived). Value.
struct DerivedTensor {
  // A strided view of the one source, as torch's as_strided: element [i, j, ...] is the source's element
  // offset + i * strides[0] + j * strides[1] + ... At most five dimensions, of the source's dtype.
  struct StridedView {
    static constexpr std::size_t kMaxRank = 5;
    std::vector<std::int64_t> strides;  // in elements, none negative
    std::int64_t offset = 0;
  };
  // -exp(x) in fp32 of each element x of the one source, which has the same shape. It is defined bit for bit: x is
  // taken as fp32, e^x is computed in fp64 and rounded.
  struct NegatedExponential {};
  // Any other computation. Writes all of the tensor, row-major. Its argument `sources` has the parameters' elements,
  // row-major, in the order of the member `sources`. It must be pure: the same sources give the same bytes. It is
  // called on the host: if the engine's buffers lie on a device, the sources are copied to the host and waited for.
  using Compute =
      std::function<void(std::span<const std::span<const std::byte>> sources, std::span<std::byte> derived)>;

  TensorSpec spec;  // name within its layer ("W_UV"); this rank's shape
  // The layer's parameters that it is computed from, by name: this rank's part, fused. A parameter that is served
  // quantized is dequantized to the dtype given here, so that the tensor derives from what the engine serves.
  std::vector<TensorSpec> sources;
  std::variant<StridedView, NegatedExponential, Compute> form;
};

}  // namespace layercast
